"""Prompts: from a text file, a JSONL file, or the built-in ones."""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass, replace
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any, TypeVar

from sglang_fence.engine.requests import Request, SamplingParams
from sglang_fence.errors import PromptError

if TYPE_CHECKING:
    from pathlib import Path

    from sglang_fence.models.tokenizer import Tokenizer

N = TypeVar("N", int, float)

MAX_SEED = 1 << 53
"""Above it, seeds would no longer differ as the floats that sampling takes them for."""

MAX_TEMPERATURE = 1e6

MIN_TOP_P = 1e-9

_KEYS = frozenset(
    {"id", "prompt", "input_ids", "max_new_tokens", "temperature", "top_p", "seed", "stop", "traceparent"},
)
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")

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
    traceparent: str | None = None
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

    A line ends at a line feed and nowhere else. A bad line of JSONL becomes a prompt that fails alone.

    Raises:
        PromptError: the file is missing, unreadable or empty.
    """
    try:
        content = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        msg = f"prompt file {path} isn't there: give a text file, one prompt a line, or JSONL"
        raise PromptError(msg) from error
    except (OSError, UnicodeDecodeError) as error:
        msg = f"prompt file {path} can't be read as UTF-8 text ({error})"
        raise PromptError(msg) from error
    lines = [(number, line) for number, line in enumerate(content.split("\n"), 1) if line.strip()]
    if not lines:
        msg = f"prompt file {path} is empty: write one prompt a line, or JSONL with prompt or input_ids"
        raise PromptError(msg)
    if path.suffix not in {".jsonl", ".ndjson"} and not _is_object(lines[0][1]):
        return [PromptLine(index, line) for index, (_, line) in enumerate(lines)]
    prompts = [_from_json(line, index, number, defaults) for index, (number, line) in enumerate(lines)]
    return _with_ids_of_their_own(prompts)


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
    request = Request(line.id, [], line.params or defaults, traceparent=line.traceparent)
    if line.error is not None:
        request.fail(line.error)
        return request
    try:
        request.prompt = list(line.ids) if line.ids is not None else tokenizer.encode(line.text)
    except PromptError as error:
        request.fail(str(error))
    return request


def _with_ids_of_their_own(prompts: list[PromptLine]) -> list[PromptLine]:
    """Let prompts fail whose id an earlier one has: who joins results by id would get the wrong ones."""
    seen: set[str | int] = set()
    checked = []
    for prompt in prompts:
        repeated = prompt.id in seen and prompt.error is None
        checked.append(replace(prompt, error=f"id {prompt.id!r} stands on an earlier line too") if repeated else prompt)
        seen.add(prompt.id)
    return checked


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _from_json(line: str, index: int, number: int, defaults: SamplingParams) -> PromptLine:
    id_: str | int = index
    try:
        value = _object(line)
        id_ = _id(value, index)
        return _checked(id_, value, defaults)
    except PromptError as error:
        return PromptLine(id_, error=f"line {number}: {error}")


def _object(line: str) -> dict[str, Any]:
    try:
        value = json.loads(line, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        msg = f"not JSON ({error})"
        raise PromptError(msg) from error
    except (ValueError, RecursionError) as error:
        msg = "nested too deeply, or a number of too many digits"
        raise PromptError(msg) from error
    if not isinstance(value, dict):
        msg = "not a JSON object with prompt or input_ids"
        raise PromptError(msg)
    return value


def _id(value: dict[str, Any], index: int) -> str | int:
    found = value.get("id", index)
    if type(found) is int or (isinstance(found, str) and _is_text(found)):
        return found
    msg = f"id must be a text or an integer; got {found!r}"
    raise PromptError(msg)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        keys = [key for key, _ in pairs]
        msg = f"key {next(key for key in keys if keys.count(key) > 1)!r} stands twice; keep one"
        raise PromptError(msg)
    return table


def _is_text(text: str) -> bool:
    """Whether it can be written as UTF-8: JSON lets half a surrogate pair pass."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _checked(id_: str | int, value: dict[str, Any], defaults: SamplingParams) -> PromptLine:
    unknown = sorted(value.keys() - _KEYS)
    if unknown:
        msg = f"unknown key {unknown[0]!r}; known are {', '.join(sorted(_KEYS))}"
        raise PromptError(msg)
    if ("prompt" in value) == ("input_ids" in value):
        msg = "give either prompt or input_ids"
        raise PromptError(msg)
    ids = value.get("input_ids")
    if "input_ids" in value and not (isinstance(ids, list) and all(type(token) is int for token in ids)):
        msg = "input_ids must be a list of integers"
        raise PromptError(msg)
    text = value.get("prompt", "")
    if not isinstance(text, str) or not _is_text(text):
        msg = "prompt must be a string, and one without half a surrogate pair"
        raise PromptError(msg)
    stop = value.get("stop", list(defaults.stop))
    stop = [stop] if isinstance(stop, str) else stop
    if not (isinstance(stop, list) and all(isinstance(one, str) and one and _is_text(one) for one in stop)):
        msg = "stop must be a text, or a list of them"
        raise PromptError(msg)
    params = SamplingParams(
        max_new_tokens=_number(value, "max_new_tokens", defaults.max_new_tokens, 1, 1 << 53),
        temperature=_number(value, "temperature", defaults.temperature, 0.0, MAX_TEMPERATURE),
        top_p=_number(value, "top_p", defaults.top_p, MIN_TOP_P, 1.0),
        seed=_number(value, "seed", defaults.seed, 0, MAX_SEED),
        stop=tuple(stop),
    )
    parent = value.get("traceparent")
    if parent is not None and not (isinstance(parent, str) and _TRACEPARENT.fullmatch(parent)):
        msg = f"traceparent must be a W3C trace context, 00-<32 hex digits>-<16 hex digits>-01; got {parent!r}"
        raise PromptError(msg)
    return PromptLine(id_, text, None if ids is None else tuple(ids), params, parent)


def _number(value: dict[str, Any], key: str, default: N, least: N, most: N) -> N:
    found = value.get(key, default)
    whole = type(default) is int
    kinds = (int,) if whole else (int, float)
    if type(found) not in kinds or not least <= found <= most:
        what = "an integer" if whole else "a number"
        msg = f"{key} must be {what}, at least {least} and at most {most}; got {str(found)[:40]}"
        raise PromptError(msg)
    return type(default)(found)
