"""``explain`` over the dumps of two processes, one of which is stuck earlier than the other."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from sglang_fence.cli import main
from sglang_fence.cli.app import app
from sglang_fence.observe.flight.form import to_text
from tests.observe.flight.facts_of import dump_of, step_of
from tests.observe.flight.outside import started

if TYPE_CHECKING:
    from pathlib import Path


def test_the_one_behind_is_found(tmp_path: Path) -> None:
    with (
        started("results", 12, tmp_path / "0", rank=0) as first,
        started("launch", 9, tmp_path / "1", rank=1) as second,
    ):
        for outside in (first, second):
            outside.until_stuck()
            outside.send(signal.SIGUSR2)
            outside.dump()
    out = tmp_path / "explained.json"
    paths = [str(path) for outside in (first, second) for path in outside.files()]
    done = CliRunner().invoke(app, ["explain", *paths, "--json", str(out)])
    assert done.exit_code == 0, done.output
    assert "behind: rank 1: the last step that it is known to have completed is 7; the furthest is at 11" in done.output
    explained = json.loads(out.read_text(encoding="utf-8"))
    assert explained["behind"] == ["rank 1"]
    one, two = explained["ranks"]
    assert (one["rank"], one["completed"], one["newest"]) == ("0", 11, {"step": 13, "stage": "fenced"})
    assert (two["rank"], two["completed"], two["newest"]) == ("1", 7, {"step": 9, "stage": "launching"})
    assert [(wait["what"], wait["step"]) for wait in two["waits"] if wait["who"] == "host"] == [("launch", 9)]


def test_the_words_of_one_rank(tmp_path: Path) -> None:
    path = tmp_path / "dump.json"
    path.write_text(to_text(dump_of(step_of(4), step_of(5), in_hand=4, awaited=5)), encoding="utf-8")
    done = CliRunner().invoke(app, ["explain", str(path)])
    assert done.exit_code == 0
    assert done.output.splitlines()[0].startswith("rank 0 (pid 7), dumped at 2023-11-14 22:13:20 UTC (signal)")
    assert "behind" not in done.output


def test_ranks_that_are_equal_and_older_dumps_have_a_line_each(tmp_path: Path) -> None:
    paths: list[str] = []
    for number, (rank, pid) in enumerate((("0", 7), ("0", 7), ("1", 8))):
        dump = replace(dump_of(step_of(5), in_hand=4), rank=rank, pid=pid, wall_ns=10**18 + number)
        path = tmp_path / f"{number}.json"
        path.write_text(to_text(dump), encoding="utf-8")
        paths.append(str(path))
    lines = CliRunner().invoke(app, ["explain", *paths]).output.splitlines()
    assert lines[-2:] == [
        "behind: no rank: all have come equally far",
        "left out: 1 dump of a process that has a newer one here",
    ]


def test_a_file_that_isnt_a_dump_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "other.json"
    path.write_text("{}", encoding="utf-8")
    monkeypatch.setattr("sys.argv", ["sglang-fence", "explain", str(path)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = capsys.readouterr().err.strip()
    assert said.startswith(f"sglang-fence: {path}: JSON, but not a dump")
    assert "\n" not in said
