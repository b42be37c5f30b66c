"""``sglang-fence run --nvtx``: a tool hears the whole run."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from sglang_fence.catalogue import NVTX_DOMAIN, nvtx_range
from sglang_fence.testing import NvtxKind, nvtx_environment, nvtx_ranges, read_nvtx_log

if TYPE_CHECKING:
    from pathlib import Path

TIMEOUT = 300
SERVE = ("--device", "simulated", "--requests", "4", "--max-new-tokens", "32")


def cli(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if "NVTX" not in name}
    return subprocess.run(
        [sys.executable, "-m", "sglang_fence", "run", *arguments],
        env=inherited | {"COLUMNS": "200", "NO_COLOR": "1", "OMP_NUM_THREADS": "1"} | variables,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )


@pytest.fixture(scope="module")
def option() -> str:
    """Return the option's name, where the command line has it."""
    if "--nvtx" not in cli("--help").stdout:
        pytest.skip("this command line has no --nvtx")
    return "--nvtx"


def test_a_tool_hears_every_phase_of_every_step(option: str, injection: Path, tmp_path: Path) -> None:
    log = tmp_path / "nvtx.jsonl"
    done = cli(*SERVE, option, **nvtx_environment(injection, log))
    assert done.returncode == 0, done.stderr
    events = read_nvtx_log(log, NVTX_DOMAIN)
    ranges = nvtx_ranges(events)
    for event in events:
        if event.kind in {NvtxKind.PUSH, NvtxKind.MARK}:
            row = nvtx_range(str(event.message))
            assert (event.category_name, event.color) == (row.category.value, row.color)
            assert isinstance(event.payload, int)
    launches = [int(found.push.payload or 0) for found in ranges if found.push.message == "launch"]
    assert len(launches) >= 32
    assert [step - launches[0] for step in launches] == list(range(len(launches)))
    barriers = [found for found in ranges if found.push.message == "barrier"]
    assert len(barriers) == len(launches)
    for barrier in barriers:
        inside = [event for event in events[barrier.first : barrier.last] if event.kind is NvtxKind.MARK]
        assert [(mark.payload, str(mark.message).split(".")[0]) for mark in inside] == [
            (barrier.push.payload, "barrier")
        ]
    for name in ("capture", "in_graph_metadata"):
        captured = [found.push.payload for found in ranges if found.push.message == name]
        assert captured
        assert -1 in captured


def test_without_a_tool_the_run_generates_the_same(option: str, tmp_path: Path) -> None:
    for name, options in {"with": [option], "without": []}.items():
        done = cli(*SERVE, *options, "--output", str(tmp_path / name))
        assert done.returncode == 0, done.stderr
    generated = (tmp_path / "with").read_text(encoding="utf-8")
    assert generated
    assert generated == (tmp_path / "without").read_text(encoding="utf-8")
