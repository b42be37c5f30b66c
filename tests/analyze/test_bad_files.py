"""Files that aren't captures, or lack what is needed: one line and exit status 2, or an answer that says what lacks."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from sglang_fence.analyze.report import analyse
from sglang_fence.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.analyze.conftest import MadeCapture

FORWARD, SCHEDULE = 17, 13


def refused(path: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "sglang_fence", "nsys", str(path), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stdout == ""
    return done.stderr


def test_no_such_file(tmp_path: Path) -> None:
    assert "is not there" in refused(tmp_path / "none.sqlite")


def test_a_folder_is_told_as_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a folder: name a capture of Nsight Systems in it"):
        analyse(tmp_path)


def test_no_database(tmp_path: Path) -> None:
    path = tmp_path / "text.sqlite"
    path.write_text("This is a text, of more than a hundred bytes, and not a database at all. " * 30, encoding="utf-8")
    with pytest.raises(ConfigError, match="is no SQLite export"):
        analyse(path)


def test_another_database(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE groceries (name)")
    with pytest.raises(ConfigError, match="not of Nsight Systems"):
        analyse(path)


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_cut_short(real: Callable[[str], Path], share: float) -> None:
    path = real("full")
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(ConfigError, match="cut short"):
        analyse(path)


@pytest.mark.parametrize(
    ("without", "words"),
    [("CUPTI_ACTIVITY_KIND_KERNEL", "no CUDA rows"), ("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "no row of a stream")],
)
def test_without_cuda(made: MadeCapture, tmp_path: Path, without: str, words: str) -> None:
    path = made.save(tmp_path / "c.sqlite", (without, "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"))
    with pytest.raises(ConfigError, match=words):
        analyse(path)


def test_graphs_as_a_whole_give_a_partial_answer(made: MadeCapture, tmp_path: Path) -> None:
    made.bind(SCHEDULE, 900, FORWARD)
    made.calls += 1
    made.rows["CUPTI_ACTIVITY_KIND_GRAPH_TRACE"].append((1000, 9000, FORWARD, made.calls, 5 << 24))
    made.wait(SCHEDULE, 1500, made.record(FORWARD, made.calls))
    made.work(SCHEDULE, 2500, 2600)
    report = analyse(made.save(tmp_path / "c.sqlite"))
    (step,) = report.steps
    assert (step.forward_end, step.slack, step.wait) == (9000, None, None)
    assert any("--cuda-graph-trace=node" in sentence for sentence in report.missing)


def test_another_program_gives_no_step_and_says_so(made: MadeCapture, tmp_path: Path) -> None:
    made.work(FORWARD, 1, 2)
    made.bind(FORWARD, 3, SCHEDULE)
    report = analyse(made.save(tmp_path / "c.sqlite"))
    assert report.steps == ()
    assert any("No barrier" in sentence for sentence in report.missing)


def test_a_wait_for_what_was_recorded_before_the_capture(made: MadeCapture, tmp_path: Path) -> None:
    made.replay(500, [(0, 1000, 2000)])
    made.work(SCHEDULE, 10, 20)
    made.name_range("barrier", 600, 700, 3)
    made.wait(SCHEDULE, 650, 12345)
    report = analyse(made.save(tmp_path / "c.sqlite"))
    assert [step.slack for step in report.steps] == [None]
    assert any("Of 1 barrier " in sentence for sentence in report.missing)


def test_a_report_without_the_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    path = tmp_path / "run.nsys-rep"
    path.touch()
    with pytest.raises(ConfigError, match=r"nsys export --type=sqlite --output=run\.sqlite run\.nsys-rep"):
        analyse(path)


@pytest.mark.skipif(os.name != "posix", reason="the stand-in for nsys is a shell script")
def test_a_report_is_exported_through_the_tool(
    real: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    export = real("plain")
    tool = tmp_path / "bin" / "nsys"
    tool.parent.mkdir()
    tool.write_text(
        f'#!/bin/sh\n[ "$1 $2" = "export --type=sqlite" ] || exit 9\n'
        f'case "$4" in *broken*) echo "bad report" >&2; exit 1;; esac\ncp "{export}" "${{3#--output=}}"\n',
        encoding="utf-8",
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}{os.pathsep}{os.environ['PATH']}")
    good, broken = tmp_path / "run.nsys-rep", tmp_path / "broken.nsys-rep"
    good.touch()
    broken.touch()
    assert len(analyse(good).steps) == 25
    with pytest.raises(ConfigError, match=r"can't export .*broken.nsys-rep \(bad report\)"):
        analyse(broken)
