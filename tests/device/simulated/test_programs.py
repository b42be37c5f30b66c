"""Every stored stream program comes out as it says itself, and so do a few cases that are easy to get wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sglang_fence.device.simulated.program import check_files, load_program, run_program

if TYPE_CHECKING:
    from sglang_fence.device.simulated.program import Verdict

PROGRAMS = sorted((Path(__file__).parents[2] / "data" / "programs").glob("*.json"))


def run(tmp_path: Path, program: dict[str, Any]) -> Verdict:
    path = tmp_path / "program.json"
    path.write_text(json.dumps(program), encoding="utf-8")
    return run_program(load_program(path))


def test_the_programs_are_there() -> None:
    assert len(PROGRAMS) == 20


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_comes_out_as_it_expects(path: Path) -> None:
    expect = json.loads(path.read_text(encoding="utf-8"))["expect"]
    ((checked, verdict),) = check_files([path])
    found: Any = verdict.to_json()
    assert checked == path
    assert found["races"] == expect["races"]
    assert found["noop_waits"] == expect["noop_waits"]
    slack = expect.get("slack_us", {})
    assert {index: found["slack_us"][index] for index in slack} == slack


def test_reading_and_writing_the_same_rows_twice_gives_each_kind_of_race_once(tmp_path: Path) -> None:
    busy = {"reads": {"b": [0, 1]}, "writes": {"b": [1, 2]}}
    host = [{"launch": "one", "on": "s", **busy}, {"launch": "two", "on": "t", **busy}]
    races = run(tmp_path, {"buffers": {"b": 3}, "host": host}).races
    assert [(race.kind, race.rows) for race in races] == [("RAW", (1,)), ("WAR", (1,)), ("WAW", (1, 2))]


def test_a_record_takes_what_the_host_had_synchronised_with(tmp_path: Path) -> None:
    host = [
        {"launch": "read", "on": "s", "us": 9, "reads": {"b": [0]}},
        {"synchronize_stream": "s"},
        {"record": "e", "on": "idle"},
        {"wait": "e", "on": "t"},
        {"launch": "write", "on": "t", "writes": {"b": [0]}},
    ]
    assert run(tmp_path, {"buffers": {"b": 1}, "host": host}).races == ()


def test_an_idle_stream_reaches_a_record_when_the_host_enqueues_it(tmp_path: Path) -> None:
    host = [
        {"record": "e", "on": "s", "host_us": 40},
        {"launch": "k", "on": "s", "us": 10, "host_us": 5},
        {"wait": "e", "on": "t"},
    ]
    assert run(tmp_path, {"host": host}).slack_us == {2: 15.0}


def test_times_are_exact_where_floats_are_not(tmp_path: Path) -> None:
    host = [{"record": "e", "on": "s"}, *({"launch": "k", "on": "s", "us": 0.1} for _ in range(10))]
    assert run(tmp_path, {"host": [*host, {"wait": "e", "on": "t"}]}).slack_us == {11: 1.0}


def test_a_wait_that_comes_before_every_record_is_listed_and_orders_nothing(tmp_path: Path) -> None:
    host = [
        {"launch": "read", "on": "s", "reads": {"b": [0]}},
        {"wait": "e", "on": "t"},
        {"record": "e", "on": "s"},
        {"launch": "write", "on": "t", "writes": {"b": [0]}},
    ]
    verdict = run(tmp_path, {"buffers": {"b": 1}, "host": host})
    assert verdict.noop_waits == (1,)
    assert verdict.slack_us == {}
    assert [race.missing for race in verdict.races] == [
        "no event recorded on 's' after read is waited for on 't' before write",
    ]


def test_repeated_kernels_of_a_replay_are_numbered_within_it(tmp_path: Path) -> None:
    program = {
        "buffers": {"b": 1},
        "graphs": {"g": [{"kernel": "k"}, {"kernel": "k", "writes": {"b": [0]}}]},
        "host": [
            {"replay": "g", "on": "s"},
            {"replay": "g", "on": "s"},
            {"host": "peek", "reads": {"b": [0]}},
        ],
    }
    races = run(tmp_path, program).races
    assert [(race.first, race.second) for race in races] == [("g[0]/k#1", "peek"), ("g[1]/k#1", "peek")]
    assert races[0].missing == "no event recorded on 's' after g[0]/k#1 is waited for by the host before peek"
