"""Histograms over a logarithmic axis: durations of a fence lie between a microsecond and seconds."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, log2
from typing import TYPE_CHECKING

from sglang_fence.cli.report.scales import label
from sglang_fence.observe.summary import percentile

if TYPE_CHECKING:
    from collections.abc import Sequence

PER_OCTAVE = (4, 2, 1)
"""Bins for each doubling: the finest of these that gives no more than :data:`MOST_BINS`."""

LEAST_BINS, MOST_BINS = 12, 40
"""Fewer are filled up with empty ones on both sides: a single bar as wide as the page says nothing."""


@dataclass(frozen=True, slots=True)
class Bin:
    """Values from ``low`` on, below ``high``, in µs. The one of zeros has both at 0."""

    low: float
    high: float
    count: int

    @property
    def name(self) -> str:
        """What it is called in a table."""
        return "0" if self.high == 0 else f"{_short(self.low)} to {_short(self.high)}"


@dataclass(frozen=True, slots=True)
class Histogram:
    """Durations of one kind."""

    key: str
    title: str
    bins: tuple[Bin, ...]
    count: int
    median: float

    @property
    def highest(self) -> int:
        """The most values in a bin."""
        return max(one.count for one in self.bins)

    @property
    def width(self) -> float:
        """Percent of the width that a bin takes."""
        return 100 / len(self.bins)

    @property
    def labels(self) -> list[tuple[float, str]]:
        """Places on the axis, in percent, at the lower ends of some bins."""
        every = max(1, ceil(len(self.bins) / 4))
        return [(index * self.width, _short(self.bins[index].low)) for index in range(0, len(self.bins), every)]


def histogram(key: str, title: str, values: Sequence[float]) -> Histogram | None:
    """Sort values, none below 0, into bins; None of nothing."""
    middle = percentile(values, 0.5)
    if middle is None:
        return None
    zeros = sum(value == 0 for value in values)
    above = [value for value in values if value > 0]
    bins = [Bin(0.0, 0.0, zeros)] if zeros else []
    if above:
        bins += _bins(above)
    return Histogram(key, title, tuple(bins), len(values), middle)


def _bins(values: Sequence[float]) -> list[Bin]:
    least, most = log2(min(values)), log2(max(values))
    per = next((per for per in PER_OCTAVE if (most - least) * per < MOST_BINS - 2), PER_OCTAVE[-1])
    first, last = floor(least * per), floor(most * per)
    spare = max(0, LEAST_BINS - (last - first + 1))
    first, last = first - spare // 2, last + (spare + 1) // 2
    counts = [0] * (last - first + 1)
    for value in values:
        counts[floor(log2(value) * per) - first] += 1
    return [Bin(2 ** ((first + at) / per), 2 ** ((first + at + 1) / per), count) for at, count in enumerate(counts)]


def _short(us: float) -> str:
    return label(float(f"{us:.3g}"))
