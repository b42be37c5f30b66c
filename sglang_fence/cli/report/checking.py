"""Values of a file, taken for what they should be. A file may be damaged, or somebody may have written into it."""

from __future__ import annotations

from typing import Any


def us(value: Any) -> float | None:  # noqa: ANN401 - whatever the file holds
    """Return a duration or a moment in µs, or what was not measured.

    Raises:
        TypeError: it is no number.
        ValueError: it is none that is finite.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        msg = f"{value!r} is no number"
        raise TypeError(msg)
    if not abs(value) <= _MOST_US:  # which NaN isn't, either
        msg = f"{value:.3g} is no time in µs" if isinstance(value, float) else "it has too many digits"
        raise ValueError(msg)
    return value


def duration(value: Any) -> float | None:  # noqa: ANN401 - as above
    """Return a duration, which isn't below 0; raises as :func:`us` does."""
    found = us(value)
    if found is not None and found < 0:
        msg = f"{value} µs is below 0"
        raise ValueError(msg)
    return found


def moment(value: Any) -> float:  # noqa: ANN401 - as above
    """Return a moment that has to be there; raises as :func:`us` does."""
    found = us(value)
    if found is None:
        msg = "a moment is missing"
        raise TypeError(msg)
    return found


def count(value: Any) -> int:  # noqa: ANN401 - as above
    """Return how many there are; raises TypeError and ValueError."""
    if isinstance(value, bool) or not isinstance(value, int):
        msg = f"{value!r} is no count"
        raise TypeError(msg)
    if not 0 <= value <= _MOST:
        msg = "a count is below 0, or has too many digits"
        raise ValueError(msg)
    return value


def word(value: Any) -> str:  # noqa: ANN401 - as above
    """Return a word; raises TypeError, and ValueError where it can't be written down."""
    if not isinstance(value, str):
        msg = f"{value!r} is no word"
        raise TypeError(msg)
    value.encode()  # half a pair of surrogates has no UTF-8
    return value


_MOST_US = 1e15
"""30 years: what is longer was no duration, and would make no picture."""

_MOST = 2**63 - 1
