"""The command line's own trace: the same command twice gives the same file, and it holds what a run has."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from sglang_fence.catalogue import SPANS
from sglang_fence_exporters.perfetto_slices import READ_DONE
from tests.exporters.perfetto.decoding import decode

if TYPE_CHECKING:
    from pathlib import Path

RUN = (sys.executable, "-m", "sglang_fence", "run")
SMALL = ("--device", "simulated", "--requests", "4", "--max-new-tokens", "16")


def sglang_fence_run(*arguments: str) -> subprocess.CompletedProcess[str]:
    wide = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}
    return subprocess.run([*RUN, *arguments], check=False, capture_output=True, text=True, timeout=300, env=wide)


@pytest.fixture(scope="module", autouse=True)
def _has_the_option() -> None:
    if "--perfetto" not in sglang_fence_run("--help").stdout:
        pytest.skip("this build of `run` has no --perfetto")


def test_the_same_command_gives_the_same_trace_of_the_whole_run(tmp_path: Path) -> None:
    contents: list[bytes] = []
    for name in ("a", "b"):
        done = sglang_fence_run(*SMALL, "--perfetto", str(tmp_path / name))
        assert done.returncode == 0, done.stderr
        contents.append((tmp_path / name).read_bytes())
    assert contents[0] == contents[1]
    decoded = decode(contents[0])
    assert {one.name for one in decoded.slices} <= {one.name for one in SPANS} | {READ_DONE}
    steps = decoded.on("step")
    numbers = [one.details["sglang_fence.step_id"] for one in steps]
    assert len(steps) >= 16
    assert len(set(numbers)) == len(numbers)
    assert {"host", "forward stream", "schedule stream"} <= {one.track for one in decoded.slices}
    let_go = [arrow for arrow in decoded.arrows.values() if arrow.source.name == READ_DONE]
    assert let_go
    assert sum(one.name == "barrier_wait" for one in decoded.slices) >= len(let_go)


def test_a_path_that_cannot_be_written_is_told_before_the_model_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "trace"
    done = sglang_fence_run(*SMALL, "--model", str(tmp_path / "no-model"), "--perfetto", str(path))
    assert done.returncode == 2
    assert "the Perfetto trace can't be written to" in done.stderr
