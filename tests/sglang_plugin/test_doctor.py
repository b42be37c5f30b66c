"""The doctor: what it finds in an environment, and what it says of it."""

from __future__ import annotations

import ast
import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from sglang_fence import native
from sglang_fence.cli.doctor_command import describe
from sglang_fence.environ import ENABLE_WAR_BARRIER, FORCE_COARSE_WAR_BARRIER
from sglang_fence.sglang_plugin.findings import Finding, State, as_sglang_reads, look
from sglang_fence.sglang_plugin.targets import TARGETS, Target
from tests.sglang_plugin.serving import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable

ON = {ENABLE_WAR_BARRIER.name: "1"}


def _package(folder: Path, targets: Iterable[Target]) -> Path:
    """Write a package that has these functions."""
    for target in targets:
        path = folder.joinpath(*target.module.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        signature = ", ".join(target.signatures[0]).replace("kwargs", "**kwargs")
        function = f"def {target.name}({signature}): ..."
        lines = [f"class {target.owner}:", f"    {function}"] if target.owner else [function]
        known = path.read_text() if path.exists() else ""
        head = f"class {target.owner}:\n"
        if target.owner and head in known:
            path.write_text(known.replace(head, f"{head}    {function}\n", 1))
        else:
            path.write_text(known + "\n".join(lines) + "\n")
        ast.parse(path.read_text())
    return folder / "sglang"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    return _package(tmp_path, TARGETS)


def _problems(findings: Iterable[Finding]) -> set[str]:
    return {finding.subject for finding in findings if finding.state is State.PROBLEM}


def test_where_all_is_well_there_is_no_problem(package: Path) -> None:
    findings = list(look(package, "0.5.23", ON))
    assert _problems(findings) == set()
    lines = list(describe(findings))
    assert f"good     hooks: {len(TARGETS)} of {len(TARGETS)} can be hooked" in lines


@pytest.mark.parametrize(
    ("environ", "subject"),
    [
        ({ENABLE_WAR_BARRIER.name: "0"}, "barrier"),
        ({ENABLE_WAR_BARRIER.name: "on"}, "barrier"),  # SGLang doesn't take that for a boolean
        ({FORCE_COARSE_WAR_BARRIER.name: "yes"}, "forced coarse"),
        ({"SGLANG_PLUGINS": "other"}, "plugin"),
        ({"SGLANG_FENCE": "0"}, "plugin"),
        ({"CUDA_DEVICE_MAX_CONNECTIONS": "1"}, "CUDA_DEVICE_MAX_CONNECTIONS"),
        ({"PROMETHEUS_MULTIPROC_DIR": "no/such/folder"}, "metrics"),
        ({"SGLANG_FENCE_TIMING_EVERY": "often"}, "SGLANG_FENCE_TIMING_EVERY"),
    ],
)
def test_what_a_user_would_miss_is_a_problem(package: Path, environ: dict[str, str], subject: str) -> None:
    if subject == "barrier" and torch.cuda.is_available():
        pytest.skip("on CUDA the barrier is on whatever the switch says")
    assert _problems(look(package, "0.5.23", {**ON, **environ})) == {subject}


@pytest.mark.parametrize("environ", [{"SGLANG_PLUGINS": "other, sglang_fence"}, {"CUDA_DEVICE_MAX_CONNECTIONS": "8"}])
def test_what_is_harmless_is_none(package: Path, environ: dict[str, str]) -> None:
    assert _problems(look(package, "0.5.23", {**ON, **environ})) == set()


def test_compiled_parts_are_told_and_never_missed(package: Path) -> None:
    (found,) = [one for one in look(package, "0.5.23", ON) if one.subject == "compiled parts"]
    assert (found.state is State.GOOD) == all(one.usable for one in native.parts({}))
    off = [one for one in look(package, "0.5.23", {**ON, "SGLANG_FENCE_NATIVE": "0"}) if one.state is not State.GOOD]
    (told,) = [one for one in off if one.subject == "compiled parts"]
    assert (told.state, told.text) == (State.NOTE, "none (switched off by SGLANG_FENCE_NATIVE)")
    assert "All works without" in told.mend


@pytest.mark.parametrize(("environ", "problems"), [({}, set[str]()), ({"SGLANG_FENCE_NVTX": "1"}, {"hook verify"})])
def test_a_range_that_is_gone_is_missed_by_those_who_asked_for_ranges(
    tmp_path: Path, environ: dict[str, str], problems: set[str]
) -> None:
    package = _package(tmp_path, [target for target in TARGETS if target.key != "verify"])
    findings = list(look(package, "0.5.23", {**ON, **environ}))
    assert _problems(findings) == problems
    assert any(finding.subject == "hook verify" and finding.state is not State.GOOD for finding in findings)


def test_a_function_that_is_gone_is_a_problem_that_says_what_isnt_seen(tmp_path: Path) -> None:
    gone = next(target for target in TARGETS if target.key == "apply_war_barrier")
    package = _package(tmp_path, [target for target in TARGETS if target is not gone])
    findings = [finding for finding in look(package, "0.6.0", ON) if finding.state is not State.GOOD]
    (problem,) = [finding for finding in findings if finding.state is State.PROBLEM]
    assert problem.subject == "hook apply_war_barrier"
    assert gone.unseen in problem.mend
    assert any("0.6.0 is new to us" in finding.text for finding in findings)


@pytest.mark.parametrize(
    ("raw", "default", "read"),
    [
        ("TRUE", False, True),
        ("y", False, True),
        ("N", True, False),
        ("on", False, False),
        ("on", True, True),
        ("", True, True),
    ],
)
def test_switches_are_read_as_sglang_reads_them(raw: str, default: bool, read: bool) -> None:  # noqa: FBT001 - a table
    assert as_sglang_reads(ENABLE_WAR_BARRIER, {ENABLE_WAR_BARRIER.name: raw}, default=default) is read


@pytest.mark.sglang
@pytest.mark.parametrize(("value", "status"), [("1", 0), ("0", 1)])
def test_in_a_serving_environment(environment: Path, value: str, status: int) -> None:
    done = subprocess.run(
        [environment / "bin/sglang-fence", "doctor", "--json"],
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "exporters"))),
            ENABLE_WAR_BARRIER.name: value,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status
    findings = json.loads(done.stdout)
    hooks = [finding for finding in findings if finding["subject"].startswith("hook ")]
    assert len(hooks) == len(TARGETS)
    assert {finding["state"] for finding in hooks} == {"good"}
