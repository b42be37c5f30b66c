"""``sglang-fence check``: exit status, words, and one JSON object a program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.runtime.commandline import subprocess_run

if TYPE_CHECKING:
    from tests.runtime.commandline import CommandLine

PROGRAMS = Path(__file__).parents[1] / "data" / "programs"
NO_FENCE, COARSE = PROGRAMS / "01_no_fence.json", PROGRAMS / "02_coarse_fence.json"


def test_a_program_without_races_is_exit_0(cli: CommandLine) -> None:
    ended = cli("check", COARSE)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith(f"{COARSE}: no race\n")


def test_a_program_with_races_is_exit_1_and_names_them(cli: CommandLine) -> None:
    ended = cli("check", NO_FENCE)
    assert (ended.code, ended.err) == (1, "")
    assert f"{NO_FENCE}: " in ended.out
    assert "WAR on " in ended.out
    assert "missing: " in ended.out


def test_one_race_among_many_programs_is_exit_1(cli: CommandLine) -> None:
    assert cli("check", COARSE, NO_FENCE, COARSE).code == 1
    assert cli("check", COARSE, COARSE).code == 0


def test_json_is_one_object_a_line_in_the_order_given(cli: CommandLine) -> None:
    ended = cli("check", "--json", NO_FENCE, COARSE)
    assert ended.code == 1
    racing, fenced = (json.loads(line) for line in ended.out.splitlines())
    assert racing["races"]
    assert fenced["races"] == []
    assert racing.keys() == fenced.keys() >= {"races", "noop_waits", "slack_us"}
    assert racing["races"][0].keys() >= {"kind", "buffer", "rows", "first", "second"}


def test_every_program_of_the_collection_is_checked_in_one_go(cli: CommandLine) -> None:
    paths = sorted(PROGRAMS.glob("*.json"))
    ended = cli("check", "--json", *paths)
    races = [bool(json.loads(line)["races"]) for line in ended.out.splitlines()]
    assert len(races) == len(paths) == 20
    assert [cli("check", path).code for path in paths] == [int(one) for one in races]


@pytest.mark.parametrize("content", [None, "{", "[]", '{"host": 1}'])
def test_a_file_that_is_no_program_is_exit_2_and_one_line(content: str | None, cli: CommandLine) -> None:
    path = cli.folder / "program.json"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    assert str(path) in cli("check", COARSE, path).mistake()


def test_exit_status_and_lines_of_a_real_process() -> None:
    assert [subprocess_run("check", path).code for path in (COARSE, NO_FENCE)] == [0, 1]
    assert "nowhere.json" in subprocess_run("check", "nowhere.json").mistake()
