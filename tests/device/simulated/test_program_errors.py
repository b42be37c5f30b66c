"""A file that isn't a stream program is refused in one line that says where, and what to write instead."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from sglang_fence.device.simulated.program import check_files, load_program
from sglang_fence.errors import ProgramError

if TYPE_CHECKING:
    from pathlib import Path

READ = {"launch": "k", "on": "s", "reads": {"b": [0]}}


def refusal(path: Path) -> str:
    with pytest.raises(ProgramError) as caught:
        load_program(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message.removeprefix(f"{path}: ")


def program(**changes: object) -> dict[str, object]:
    return {"buffers": {"b": 2}, "graphs": {"g": [{"kernel": "k"}]}, "external_events": ["m"], "host": [READ]} | changes


def with_op(op: object) -> dict[str, object]:
    return program(host=[READ, op])


def with_node(node: object) -> dict[str, object]:
    return program(graphs={"g": [{"kernel": "k"}, node]})


BAD: dict[str, tuple[object, str, str]] = {
    # case: what the file holds, the place that is named, a word of the mend
    "no host": ({"buffers": {}}, "host", "is missing"),
    "unknown key": (program(hots=[]), "hots", "did you mean host?"),
    "host is no list": (program(host={}), "host", "write a list"),
    "name is no text": (program(name=3), "name", "write a name"),
    "about is no text": (program(about=[]), "about", "write a name"),
    "buffers is a list": (program(buffers=["b"]), "buffers", "write an object"),
    "rows are text": (program(buffers={"b": "2"}), "buffers.b", "number of rows"),
    "rows are a boolean": (program(buffers={"b": True}), "buffers.b", "number of rows"),
    "no rows": (program(buffers={"b": 0}), "buffers.b", "1 or more"),
    "event is no text": (program(external_events=[1]), "external_events[0]", "write a name"),
    "graph is no list": (program(graphs={"g": {}}), "graphs.g", "write a list"),
    "node is no object": (with_node("k"), "graphs.g[1]", "write an object"),
    "node without operation": (with_node({"us": 3}), "graphs.g[1]", "exactly one of kernel, record"),
    "node with two": (with_node({"kernel": "k", "record": "m"}), "graphs.g[1]", "kernel and record"),
    "node with unknown key": (with_node({"kernel": "k", "on": "s"}), "graphs.g[1].on", "unknown key"),
    "record with a time": (with_node({"record": "m", "us": 1}), "graphs.g[1].us", "unknown key"),
    "undeclared external event": (with_node({"record": "x"}), "graphs.g[1].record", "external_events"),
    "negative node time": (with_node({"kernel": "k", "us": -1}), "graphs.g[1].us", "negative"),
    "node row out of range": (with_node({"kernel": "k", "writes": {"b": [5]}}), "graphs.g[1].writes.b[0]", "0 to 1"),
    "op is no object": (with_op(1), "host[1]", "write an object"),
    "op without operation": (with_op({"on": "s"}), "host[1]", "exactly one of launch"),
    "op with two": (with_op({"launch": "k", "replay": "g", "on": "s"}), "host[1]", "launch and replay"),
    "op with unknown key": (with_op({"launch": "k", "on": "s", "raeds": {}}), "host[1].raeds", "reads"),
    "replay that reads": (with_op({"replay": "g", "on": "s", "reads": {}}), "host[1].reads", "unknown key"),
    "synchronize on": (with_op({"synchronize": "m", "on": "s"}), "host[1].on", "unknown key"),
    "launch without stream": (with_op({"launch": "k"}), "host[1].on", "is missing"),
    "stream is no text": (with_op({"launch": "k", "on": 1}), "host[1].on", "write a name"),
    "empty name": (with_op({"launch": "", "on": "s"}), "host[1].launch", "write a name"),
    "unknown graph": (with_op({"replay": "h", "on": "s"}), "host[1].replay", "known: g"),
    "wait for nothing": (with_op({"wait": "x", "on": "s"}), "host[1].wait", "one of m"),
    "synchronize with nothing": (with_op({"synchronize": "x"}), "host[1].synchronize", "declares or records"),
    "undeclared buffer": (with_op({"launch": "k", "on": "s", "reads": {"c": [0]}}), "host[1].reads.c", "known: b"),
    "rows no list": (with_op({"launch": "k", "on": "s", "reads": {"b": 0}}), "host[1].reads.b", "write a list"),
    "row is a boolean": (with_op({"launch": "k", "on": "s", "reads": {"b": [True]}}), "host[1].reads.b[0]", "number"),
    "row is a float": (with_op({"launch": "k", "on": "s", "reads": {"b": [0.0]}}), "host[1].reads.b[0]", "number"),
    "negative row": (with_op({"host": "h", "writes": {"b": [0, -1]}}), "host[1].writes.b[1]", "write 0 to 1"),
    "row out of range": (with_op({"host": "h", "writes": {"b": [2]}}), "host[1].writes.b[0]", "has 2 rows"),
    "time is a boolean": (with_op({"host": "h", "us": True}), "host[1].us", "number of microseconds"),
    "time is text": (with_op({"host": "h", "us": "1"}), "host[1].us", "number of microseconds"),
    "time is null": (with_op({"host": "h", "us": None}), "host[1].us", "number of microseconds"),
    "time is huge": (with_op({"host": "h", "us": 1e13}), "host[1].us", "at most"),
    "negative host time": (with_op({"record": "e", "on": "s", "host_us": -0.5}), "host[1].host_us", "negative"),
    "expect is a list": (program(expect=[]), "expect", "write an object"),
    "expect has an unknown key": (program(expect={"race": []}), "expect.race", "did you mean races?"),
    "expected race is text": (program(expect={"races": ["x"]}), "expect.races[0]", "write an object"),
    "expected wait is text": (program(expect={"noop_waits": ["1"]}), "expect.noop_waits[0]", "index"),
    "expected slack is text": (program(expect={"slack_us": {"1": "2"}}), "expect.slack_us.1", "microseconds"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_wrong_entry_is_named_with_its_place_and_mend(case: str, tmp_path: Path) -> None:
    content, place, mend = BAD[case]
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    message = refusal(path)
    assert message.startswith(f"{place}: ")
    assert mend in message


RAW: dict[str, tuple[bytes, str]] = {
    "broken JSON": (b'{"host": [', "not JSON: Expecting value at line 1 column 11"),
    "empty": (b"", "not JSON"),
    "not an object": (b"[1, 2]", "holds [1, 2]; write an object"),
    "a key twice": (b'{"host": [], "host": []}', "'host' stands twice"),
    "an inner key twice": (b'{"buffers": {"b": 1, "b": 2}, "host": []}', "'b' stands twice"),
    "NaN": (b'{"host": [{"host": "h", "us": NaN}]}', "NaN is no JSON number"),
    "infinity": (b'{"host": [{"host": "h", "us": -Infinity}]}', "-Infinity is no JSON number"),
    "overflow": (b'{"host": [{"host": "h", "us": 1e999}]}', "host[0].us: is inf; write a finite number"),
    "too many digits": (b'{"host": [], "name": ' + b"9" * 5000 + b"}", "too many digits"),
    "nested too deeply": (b'{"host": ' + b"[" * 200_000, "nested too deeply"),
    "not UTF-8": (b'{"name": "\xff"}', "not UTF-8 (byte 10)"),
}


@pytest.mark.parametrize("case", RAW)
def test_a_file_that_is_no_json_object_is_refused(case: str, tmp_path: Path) -> None:
    content, mend = RAW[case]
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    assert mend in refusal(path)


def test_a_missing_file_or_a_folder_is_refused(tmp_path: Path) -> None:
    assert "No such file" in refusal(tmp_path / "nowhere.json")
    assert "directory" in refusal(tmp_path)


def test_the_program_that_the_table_starts_from_is_good(tmp_path: Path) -> None:
    path = tmp_path / "good.json"
    path.write_text(json.dumps(program()), encoding="utf-8")
    loaded = load_program(path)
    assert (loaded.name, loaded.about, loaded.expect) == ("good", "", None)


def test_one_bad_file_among_several_is_named(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(json.dumps(program()), encoding="utf-8")
    bad.write_text("{}", encoding="utf-8")
    with pytest.raises(ProgramError, match=r"bad\.json: host: is missing"):
        check_files([good, bad])
