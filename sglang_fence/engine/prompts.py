"""Prompts: from a text file, a JSONL file, or the built-in ones."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, replace
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any, TypeVar

from sglang_fence.engine.requests import Request, SamplingParams
from sglang_fence.errors import PromptError

if TYPE_CHECKING:
    from pathlib import Path

    from sglang_fence.models.tokenizer import Tokenizer

N = TypeVar("N", int, float)

_KEYS = frozenset({"id", "prompt", "input_ids", "max_new_tokens", "temperature", "top_p", "seed", "stop"})

_TOPICS = (
    "a pump that lost its prime",
    "the tide tables of a small harbour",
    "why bread needs salt",
    "a letter that arrived after forty years",
    "the second law, told to a child",
    "mending a fence in the rain",
    "two streams that meet below the mill",
    "how a loom keeps its threads apart",
)
_PREAMBLE = "You are a patient guide. Answer in plain words, name what you don't know, and keep it short. "


@dataclass(frozen=True, slots=True)
class PromptLine:
    """One prompt before it is tokens: ``text`` or ``ids``, or an ``error`` that it fails with."""

    id: str | int
    text: str = ""
    ids: tuple[int, ...] | None = None
    params: SamplingParams | None = None
    error: str | None = None


def built_in(count: int, seed: int) -> list[PromptLine]:
    """``count`` prompts of different lengths, some with a common beginning; the same for the same seed."""
    rng = random.Random(seed)  # noqa: S311 - variety, not secrecy
    lines = []
    for index in range(count):
        topic = _TOPICS[index % len(_TOPICS)]
        detail = " ".join(rng.choice(_TOPICS) for _ in range(rng.randrange(4)))
        opening = _PREAMBLE if rng.random() < 0.5 else ""  # noqa: PLR2004 - every second one, by and large
        lines.append(PromptLine(index, f"{opening}Tell me about {topic}. {detail}".strip()))
    return lines


def read_prompts(path: Path, defaults: SamplingParams) -> list[PromptLine]:
    """Read a file of prompts: one a line, or JSONL (by its ending, or if its first line is a JSON object).

    A bad line of JSONL becomes a prompt that fails alone.

    Raises:
        PromptError: the file is missing, unreadable or empty.
    """
    try:
        content = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        msg = f"prompt file {path} isn't there: give a text file, one prompt a line, or JSONL"
        raise PromptError(msg) from error
    except (OSError, UnicodeDecodeError) as error:
        msg = f"prompt file {path} can't be read as UTF-8 text ({error})"
        raise PromptError(msg) from error
    lines = [line for line in content.splitlines() if line.strip()]
    if not lines:
        msg = f"prompt file {path} is empty: write one prompt a line, or JSONL with prompt or input_ids"
        raise PromptError(msg)
    if path.suffix in {".jsonl", ".ndjson"} or _is_object(lines[0]):
        return [_from_json(line, index, defaults) for index, line in enumerate(lines)]
    return [PromptLine(index, line) for index, line in enumerate(lines)]


def take(lines: list[PromptLine], count: int | None) -> list[PromptLine]:
    """The first ``count`` prompts, from the beginning again when there are fewer; None: all, once.

    Repeated ones get ids of their own.
    """
    if count is None or count == len(lines):
        return lines
    rounds = enumerate(islice(cycle(lines), count))
    return [
        line if index < len(lines) else replace(line, id=f"{line.id}#{index // len(lines)}") for index, line in rounds
    ]


def to_request(line: PromptLine, tokenizer: Tokenizer, defaults: SamplingParams) -> Request:
    """Tokenize one prompt; one that can't be is a request that has failed."""
    request = Request(line.id, [], line.params or defaults)
    if line.error is not None:
        request.fail(line.error)
        return request
    try:
        request.prompt = list(line.ids) if line.ids is not None else tokenizer.encode(line.text)
    except PromptError as error:
        request.fail(str(error))
    return request


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except json.JSONDecodeError:
        return False


def _from_json(line: str, index: int, defaults: SamplingParams) -> PromptLine:
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        return PromptLine(index, error=f"line {index + 1} isn't JSON ({error})")
    if not isinstance(value, dict):
        return PromptLine(index, error=f"line {index + 1} isn't a JSON object with prompt or input_ids")
    name = value.get("id", index)
    id_ = name if isinstance(name, str | int) and not isinstance(name, bool) else index
    try:
        return _checked(id_, value, defaults)
    except PromptError as error:
        return PromptLine(id_, error=f"line {index + 1}: {error}")


def _checked(id_: str | int, value: dict[str, Any], defaults: SamplingParams) -> PromptLine:
    unknown = sorted(value.keys() - _KEYS)
    if unknown:
        msg = f"unknown key {unknown[0]!r}; known are {', '.join(sorted(_KEYS))}"
        raise PromptError(msg)
    if ("prompt" in value) == ("input_ids" in value):
        msg = "give either prompt or input_ids"
        raise PromptError(msg)
    ids = value.get("input_ids")
    if ids is not None and not (isinstance(ids, list) and all(type(token) is int for token in ids)):
        msg = "input_ids must be a list of integers"
        raise PromptError(msg)
    text = value.get("prompt", "")
    if not isinstance(text, str):
        msg = "prompt must be a string"
        raise PromptError(msg)
    stop = value.get("stop", list(defaults.stop))
    stop = [stop] if isinstance(stop, str) else stop
    if not (isinstance(stop, list) and all(isinstance(one, str) and one for one in stop)):
        msg = "stop must be a text, or a list of them"
        raise PromptError(msg)
    params = SamplingParams(
        max_new_tokens=_number(value, "max_new_tokens", defaults.max_new_tokens, 1, None),
        temperature=_number(value, "temperature", defaults.temperature, 0.0, None),
        top_p=_number(value, "top_p", defaults.top_p, 0.0, 1.0),
        seed=_number(value, "seed", defaults.seed, 0, 1 << 53),
        stop=tuple(stop),
    )
    return PromptLine(id_, text, None if ids is None else tuple(ids), params)


def _number(value: dict[str, Any], key: str, default: N, least: N, most: N | None) -> N:
    found = value.get(key, default)
    whole = type(default) is int
    kinds = (int,) if whole else (int, float)
    ok = type(found) in kinds and found >= least and (most is None or found <= most)
    if not ok:
        what = "an integer" if whole else "a number"
        upper = "" if most is None else f" and at most {most}"
        msg = f"{key} must be {what}, at least {least}{upper}; got {found!r}"
        raise PromptError(msg)
    return type(default)(found)
