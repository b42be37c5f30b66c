"""``Reservoir`` and ``pooled``: fair samples, of one kind of step as of several together, and of the whole run."""

from __future__ import annotations

from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_fence.observe.summary import Reservoir, pooled


def filled(values: list[float], most: int) -> Reservoir:
    reservoir = Reservoir(most)
    for value in values:
        reservoir.add(value)
    return reservoir


@given(values=st.lists(st.floats(allow_nan=False), max_size=60), most=st.integers(1, 40))
def test_it_keeps_so_many_of_what_came_and_all_while_there_is_room(values: list[float], most: int) -> None:
    reservoir = filled(values, most)
    assert reservoir.seen == len(values)
    assert len(reservoir.values) == min(most, len(values))
    if len(values) <= most:
        assert reservoir.values == values
    left = list(values)
    for value in reservoir.values:
        left.remove(value)  # each came as often as it is kept, at least


@pytest.mark.parametrize("count", [1_000, 2_000, 10_000])
def test_early_middle_and_late_values_are_kept_alike(count: int) -> None:
    kept = filled([float(value) for value in range(count)], 500).values
    thirds = [sum(part * count / 3 <= value < (part + 1) * count / 3 for value in kept) for part in range(3)]
    assert sum(thirds) == 500
    assert all(abs(third - 500 / 3) < 40 for third in thirds)  # four standard deviations


@given(st.lists(st.lists(st.floats(0, 1e6), max_size=20), max_size=5))
def test_samples_that_are_whole_are_joined_whole_and_in_order(parts: list[list[float]]) -> None:
    assert pooled(filled(part, 20) for part in parts) == [value for part in parts for value in part]


def test_each_kind_weighs_as_much_as_it_has_steps() -> None:
    often, seldom = filled([1.0] * 30_000, 1_000), filled([2.0] * 900, 1_000)
    together = pooled([often, seldom])
    assert together.count(2.0) / len(together) == pytest.approx(900 / 30_900, rel=0.04)
    assert together.count(1.0) == 1_000


def test_the_part_that_is_taken_speaks_for_the_whole_run() -> None:
    growing = [float(value) for value in range(1_000)]
    together = pooled([filled(growing, 1_000), filled([0.0] * 4_000, 1_000)])
    part = [value for value in together if value > 0]
    assert len(part) == pytest.approx(250, abs=1)
    assert fmean(part) == pytest.approx(fmean(growing), rel=0.15)
    assert max(part) > 900


def test_the_same_run_gives_the_same_sample() -> None:
    values = [float(value) for value in range(5_000)]
    parts = [filled(values, 300), filled(values[:400], 300)]
    assert pooled(parts) == pooled([filled(values, 300), filled(values[:400], 300)])
    assert pooled(parts) == pooled(parts)


def test_nothing_pools_to_nothing() -> None:
    assert pooled([]) == pooled([Reservoir(3)]) == []
