"""Result files: JSON of one benchmark's run, written and read back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

from sglang_fence.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

T = TypeVar("T")

FORMAT = 1
"""Rises when files of before can't be read any more."""

_DIGITS = 7
"""Significant ones: far more than the noise leaves."""


def to_text(bench: str, content: Mapping[str, Any]) -> str:
    """Return the file's content: ``content``, under the benchmark's name, with numbers rounded."""
    return _pretty({"bench": bench, "format": FORMAT, **content}) + "\n"


def load(path: Path, bench: str, from_json: Callable[[Mapping[str, Any]], T]) -> T:
    """Read a file that a benchmark wrote.

    Args:
        path: the file.
        bench: which benchmark's it has to be.
        from_json: makes the result of its content.

    Raises:
        ConfigError: it can't be read, or isn't such a file.
    """
    mend = f"make it anew with: sglang-fence bench {bench} --json {path}"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        msg = f"{path} can't be read ({error.strerror}): {mend}"
        raise ConfigError(msg) from error
    except ValueError as error:
        msg = f"{path} is no JSON: {mend}"
        raise ConfigError(msg) from error
    if not isinstance(content, dict) or content.get("bench") != bench or content.get("format") != FORMAT:
        msg = f"{path} is no result of bench {bench} in format {FORMAT}: {mend}"
        raise ConfigError(msg)
    try:
        return from_json(content)
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError) as error:
        msg = f"{path} lacks figures, or has wrong ones ({error!r}): {mend}"
        raise ConfigError(msg) from error


def _pretty(value: Any, indent: str = "") -> str:  # noqa: ANN401 - any JSON
    """Write what holds plain values alone on one line, all else entry by entry."""
    if isinstance(value, float):
        return json.dumps(float(f"{value:.{_DIGITS}g}"))
    if isinstance(value, dict):
        entries, brackets = [(f"{json.dumps(key)}: ", one) for key, one in value.items()], "{}"
    elif isinstance(value, (list, tuple)):
        entries, brackets = [("", one) for one in value], "[]"
    else:
        return json.dumps(value, ensure_ascii=False)
    if not any(isinstance(one, (dict, list, tuple)) for _, one in entries):
        return f"{brackets[0]}{', '.join(key + _pretty(one) for key, one in entries)}{brackets[1]}"
    inner = indent + " "
    lines = ",\n".join(f"{inner}{key}{_pretty(one, inner)}" for key, one in entries)
    return f"{brackets[0]}\n{lines}\n{indent}{brackets[1]}"
