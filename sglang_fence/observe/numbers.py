"""Numbers that the compiled part writes in place, where it is there: steps counted, the newest result, a histogram.

They are bases of what has such a number among other things. Without the compiled part they are plain classes, which do
the same.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import cache
from typing import TYPE_CHECKING

from sglang_fence import native

__all__ = ["Counted", "Histogram", "InHand", "bounds_us"]


@cache
def bounds_us(buckets: int) -> tuple[float, ...]:
    """Return the upper bounds of so many buckets in µs, exactly: powers of two, from 1 on."""
    return tuple(float(2**exponent) for exponent in range(buckets))


class PlainCounted:
    """Where steps are counted."""

    __slots__ = ("steps",)
    steps: int


class PlainInHand:
    """The newest step whose results the host has, and the newest whose timing events were read."""

    __slots__ = ("in_hand", "timed")
    in_hand: int
    timed: int


class PlainHistogram:
    """Durations in µs by buckets between powers of two, and their sum.

    Args:
        buckets: finite ones, 64 at the most; one more is for what is longer.
    """

    __slots__ = ("_bounds_us", "counts", "sum_us")

    def __init__(self, buckets: int) -> None:
        self._bounds_us = bounds_us(buckets)
        self.counts = [0] * (buckets + 1)
        """How many by bucket, not cumulated."""
        self.sum_us = 0.0

    def add(self, us: float) -> None:
        """Count one in; ``us`` isn't negative."""
        self.counts[bisect_left(self._bounds_us, us)] += 1
        self.sum_us += us

    @property
    def count(self) -> int:
        """How many were counted in."""
        return sum(self.counts)


if not TYPE_CHECKING and native.part(native.QUICK).usable:
    from sglang_fence.native._quick import Counted, Histogram, InHand
else:
    Counted = PlainCounted
    Histogram = PlainHistogram
    InHand = PlainInHand
