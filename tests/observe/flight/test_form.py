"""A dump is read back as it was; what isn't one is refused in one line that names the file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_fence.errors import DumpError
from sglang_fence.observe.flight.comparing import compare
from sglang_fence.observe.flight.explaining import stand
from sglang_fence.observe.flight.form import FORM_VERSION, from_text, read, to_text
from sglang_fence.observe.flight.wording import paragraph, to_json
from tests.observe.flight.strategies import dumps

if TYPE_CHECKING:
    from pathlib import Path

    from sglang_fence.observe.flight.facts import Dump

KINDS: tuple[object, ...] = (None, "x", -1, 1.5, [], {}, True)


@given(dumps)
def test_what_is_written_is_read_back(dump: Dump) -> None:
    assert from_text(to_text(dump)) == dump


@given(st.lists(dumps, min_size=1, max_size=3))
def test_any_dumps_can_be_explained(given_dumps: list[Dump]) -> None:
    comparison = compare([stand(dump) for dump in given_dumps])
    assert comparison.standings
    for standing in comparison.standings:
        assert all(paragraph(standing))
    json.dumps(to_json(comparison))


def _places(value: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found += _places(inner, (*path, key))
    return found


def refusal(text: str) -> str | None:
    try:
        from_text(text, "d.json")
    except DumpError as error:
        return str(error)
    return None


@given(dumps, st.data())
def test_damage_is_noticed_or_harmless_and_never_a_traceback(dump: Dump, data: st.DataObject) -> None:
    value = json.loads(to_text(dump))
    *outer, last = data.draw(st.sampled_from(_places(value)))
    inner = value
    for key in outer:
        inner = inner[key]
    if data.draw(st.booleans()) and isinstance(inner, dict):
        del inner[last]
    else:
        inner[last] = data.draw(st.sampled_from(KINDS))
    refused = refusal(json.dumps(value))
    assert refused is None or (refused.startswith("d.json: ") and "\n" not in refused)


@given(dumps, st.data())
def test_a_file_that_was_cut_off_is_refused(dump: Dump, data: st.DataObject) -> None:
    text = to_text(dump)
    with pytest.raises(DumpError, match=r"^d.json: not JSON, or not whole"):
        from_text(text[: data.draw(st.integers(0, len(text) - 3))], "d.json")


def test_a_key_that_is_missing_is_named(dump_text: str) -> None:
    value = json.loads(dump_text)
    del value["steps"][0]["fence"]
    with pytest.raises(DumpError, match=r"^d.json: steps\[0\]: fence is missing"):
        from_text(json.dumps(value), "d.json")


def test_a_word_that_isnt_known_is_named_with_those_that_are(dump_text: str) -> None:
    value = json.loads(dump_text)
    value["steps"][0]["fence"] = "iron"
    with pytest.raises(DumpError, match=r"^d.json: steps\[0\]: fence is 'iron', not one of fine, coarse"):
        from_text(json.dumps(value), "d.json")


def test_another_version_says_which_program_reads_it(dump_text: str) -> None:
    value = json.loads(dump_text) | {"form_version": FORM_VERSION + 1, "version": "9.9"}
    with pytest.raises(DumpError, match=r"form version 2, and this program reads 1; use sglang-fence 9\.9"):
        from_text(json.dumps(value))


@pytest.mark.parametrize("text", ["[]", "{}", "1", '{"traceEvents": []}', '{"format": "other"}'])
def test_json_of_something_else_is_told_from_a_damaged_dump(text: str) -> None:
    with pytest.raises(DumpError, match="JSON, but not a dump of the flight recorder"):
        from_text(text)


def test_files_that_cant_be_read_are_named(tmp_path: Path) -> None:
    binary = tmp_path / "binary.json"
    binary.write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path / "missing.json", tmp_path, binary):
        with pytest.raises(DumpError, match=str(path)):
            read(path)
