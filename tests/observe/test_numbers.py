"""The numbers that the compiled part writes in place are those of the plain classes."""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_fence import native
from sglang_fence.observe.flight.progress import Progress
from sglang_fence.observe.ledger import BUCKETS, Cell, Durations, Route
from sglang_fence.observe.numbers import PlainCounted, PlainHistogram, PlainInHand

compiled = pytest.mark.skipif(not native.part(native.QUICK).usable, reason=native.part(native.QUICK).why)

BOUNDS = [2.0**exponent for exponent in range(-2, 66)]
DURATIONS = st.one_of(
    st.floats(0.0, allow_nan=False),
    st.sampled_from(
        [around for us in BOUNDS for around in (math.nextafter(us, 0.0), us, math.nextafter(us, math.inf))]
    ),
)


def _quick() -> Any:  # noqa: ANN401 - a module that isn't there everywhere
    return import_module("sglang_fence.native._quick")


@compiled
@given(durations=st.lists(DURATIONS, max_size=40), buckets=st.integers(1, 64))
def test_a_compiled_histogram_is_the_plain_one(durations: list[float], buckets: int) -> None:
    plain, made = PlainHistogram(buckets), _quick().Histogram(buckets)
    for us in durations:
        plain.add(us)
        made.add(us)
    assert (made.counts, made.count, made.sum_us) == (plain.counts, plain.count, plain.sum_us)


@compiled
@pytest.mark.parametrize("us", [math.inf, math.nan, 0.0, -0.0, -1.0])
def test_a_compiled_histogram_takes_what_has_no_power_of_two(us: float) -> None:
    plain, made = PlainHistogram(4), _quick().Histogram(4)
    plain.add(us)
    made.add(us)
    assert made.counts == plain.counts


@compiled
@pytest.mark.parametrize("buckets", [0, -1, 65])
def test_a_compiled_histogram_has_room_for_so_many_buckets(buckets: int) -> None:
    with pytest.raises(ValueError, match="1 to 64 buckets"):
        _quick().Histogram(buckets)


@compiled
def test_a_duration_that_is_no_number_isnt_counted() -> None:
    made = _quick().Histogram(4)
    with pytest.raises(TypeError):
        made.add("long")
    assert (made.count, made.sum_us) == (0, 0.0)


def test_what_is_counted_starts_at_nothing() -> None:
    durations = Durations()
    assert (Cell().steps, Route([]).steps) == (0, 0)
    assert (durations.counts, durations.count, durations.sum_us) == ([0] * (BUCKETS + 1), 0, 0.0)


@pytest.mark.parametrize(
    ("made", "name", "plain"),
    [(Cell(), "Counted", PlainCounted), (Route([]), "Counted", PlainCounted), (Progress(), "InHand", PlainInHand)],
    ids=["cell", "route", "progress"],
)
def test_numbers_lie_where_the_compiled_part_finds_them(made: object, name: str, plain: type) -> None:
    usable = native.part(native.QUICK).usable
    assert isinstance(made, getattr(_quick(), name) if usable else plain)
