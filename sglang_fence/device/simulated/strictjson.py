"""JSON files that people write by hand: read strictly, refused in one line that says where and what to write."""

from __future__ import annotations

import json
import math
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from sglang_fence.errors import UserError

MAX_US = 1e12
"""The longest time that is taken for one, eleven virtual days: above it is a slip, and sums would lose digits."""

_SHOWN = 40


class _RefusedError(ValueError):
    """Something that the JSON module would let pass."""


def read_object(path: Path, error: type[UserError]) -> dict[str, object]:
    """Read the JSON object in ``path``.

    Raises:
        error: no such file, not UTF-8, not JSON, a key twice in one object, NaN or Infinity, or not an object.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as cause:
        msg = f"{path}: not UTF-8 (byte {cause.start}); save it as UTF-8"
        raise error(msg) from cause
    except OSError as cause:
        msg = f"{path}: can't be read: {cause.strerror or cause}; give the path of a JSON file"
        raise error(msg) from cause
    try:
        value: object = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except json.JSONDecodeError as cause:
        msg = f"{path}: not JSON: {cause.msg} at line {cause.lineno} column {cause.colno}; mend it there"
        raise error(msg) from cause
    except (ValueError, RecursionError) as cause:
        why = str(cause) if isinstance(cause, _RefusedError) else "nested too deeply, or a number of too many digits"
        msg = f"{path}: {why}"
        raise error(msg) from cause
    if not isinstance(value, dict):
        msg = f"{path}: holds {show(value)}; write an object, {{…}}, at the top"
        raise error(msg)
    return value


def show(value: object) -> str:
    """Return ``value`` as JSON, cut short, for a message in one line."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def time_problem(value: object) -> str | None:
    """Say what is wrong with ``value`` as a time in µs, and the mend; None: nothing."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"is {show(value)}; write a number of microseconds"
    if isinstance(value, float) and not math.isfinite(value):
        return f"is {value}; write a finite number of microseconds"
    if value < 0:
        return f"is {show(value)}; a time can't be negative, write 0 or more microseconds"
    if value > MAX_US:
        return f"is {show(value)}; write at most {MAX_US:.0e} microseconds"
    return None


def closest(name: str, known: Iterable[str]) -> str:
    """Suggest names for one that isn't known: the closest, else all."""
    names = sorted(known)
    near = get_close_matches(name, names, n=3)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"known: {', '.join(names)}" if names else "there are none"


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    table: dict[str, object] = {}
    for key, value in pairs:
        if key in table:
            msg = f"key {key!r} stands twice in one object; keep one"
            raise _RefusedError(msg)
        table[key] = value
    return table


def _refuse_constant(text: str) -> object:
    msg = f"{text} is no JSON number; write a finite one"
    raise _RefusedError(msg)
