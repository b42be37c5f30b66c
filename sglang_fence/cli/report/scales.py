"""Axes: round numbers on them, and what they are called."""

from __future__ import annotations

from math import floor, log10

_MOST = 4
_STEPS = (1, 2, 5, 10)


def ticks(whole: float, most: int = _MOST) -> list[tuple[float, str]]:
    """Return round places from 0 to ``whole`` µs, ``most`` of them at the most, with their labels."""
    rough = whole / most
    unit = 10 ** floor(log10(rough))
    step = next(unit * factor for factor in _STEPS if unit * factor >= rough)
    count = floor(whole / step)
    return [(index * step, label(index * step)) for index in range(count + 1)]


def label(us: float) -> str:
    """Return µs in a unit that keeps the number short."""
    if us >= 1e6:  # noqa: PLR2004 - a second
        return f"{us / 1e6:g} s"
    if us >= 1e4:  # noqa: PLR2004 - from here on, milliseconds are shorter
        return f"{us / 1e3:g} ms"
    return "0" if us == 0 else f"{us:g} µs"
