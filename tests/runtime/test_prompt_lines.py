"""Files of prompts, line by line: what is refused fails alone, with its line; the rest is read as written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sglang_fence.engine.prompts import read_prompts
from sglang_fence.engine.requests import SamplingParams

if TYPE_CHECKING:
    from pathlib import Path

    from sglang_fence.engine.prompts import PromptLine

GOOD = '{"prompt": "fine", "id": "good"}'

BAD = {
    '{"prompt": "\\ud800"}': "half a surrogate pair",
    '{"prompt": "a", "stop": "\\ud800"}': "stop must be",
    '{"id": "\\ud800", "prompt": "a"}': "id must be a text or an integer",
    '{"id": null, "prompt": "a"}': "id must be a text or an integer",
    '{"id": true, "prompt": "a"}': "id must be a text or an integer",
    '{"prompt": "a", "prompt": "b"}': "'prompt' stands twice",
    '{"input_ids": null}': "input_ids must be a list of integers",
    '{"input_ids": [true]}': "input_ids must be a list of integers",
    '{"prompt": "a", "top_p": 0}': "top_p must be a number",
    '{"prompt": "a", "temperature": Infinity}': "temperature must be a number",
    '{"prompt": "a", "temperature": ' + "9" * 400 + "}": "temperature must be a number",
    '{"prompt": "a", "seed": ' + "9" * 5000 + "}": "a number of too many digits",
    '{"prompt": "a", "seed": 9007199254740993}': "seed must be an integer",
    '{"input_ids": ' + "[" * 100_000: "nested too deeply",
    '{"prompt": "a", "colour": 1}': "unknown key 'colour'",
    '{"prompt": "a", "input_ids": [1]}': "either prompt or input_ids",
    "nonsense": "not JSON",
    "[1]": "not a JSON object",
}


def read(folder: Path, content: str, name: str = "prompts.jsonl") -> list[PromptLine]:
    path = folder / name
    path.write_bytes(content.encode())
    return read_prompts(path, SamplingParams())


@pytest.mark.parametrize("line", BAD, ids=lambda line: str(line)[:40])
def test_a_bad_line_fails_alone_and_names_its_line(tmp_path: Path, line: str) -> None:
    first, bad, last = read(tmp_path, f'{{"prompt": "a"}}\n\n\n{line}\n{GOOD}\n')
    assert first.error is None
    assert (last.id, last.text, last.error) == ("good", "fine", None)
    assert bad.error is not None
    assert bad.error.startswith("line 4: ")
    assert BAD[line] in bad.error


def test_a_second_line_of_the_same_id_fails(tmp_path: Path) -> None:
    first, second = read(tmp_path, f"{GOOD}\n{GOOD}\n")
    assert first.error is None
    assert second.error == "id 'good' stands on an earlier line too"


@pytest.mark.parametrize("odd", ["\u2028", "\u0085", "\x0b", "\x0c", "\x1e"])
def test_a_line_ends_at_a_line_feed_and_nowhere_else(tmp_path: Path, odd: str) -> None:
    (text,) = read(tmp_path, f"one{odd}two\r\n", "prompts.txt")
    assert text.text == f"one{odd}two"


@pytest.mark.parametrize(
    ("content", "name"), [("plain", "prompts.txt"), (GOOD, "prompts.jsonl"), (GOOD, "prompts.txt")]
)
def test_a_byte_order_mark_belongs_to_no_prompt(tmp_path: Path, content: str, name: str) -> None:
    (line,) = read(tmp_path, "\ufeff" + content, name)
    assert (line.text, line.error) == ("plain" if content == "plain" else "fine", None)
