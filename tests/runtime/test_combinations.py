"""The small set of combinations covers every pair of choices, and is small."""

from __future__ import annotations

from itertools import combinations, product
from typing import TYPE_CHECKING

import pytest

from tests.runtime.combinations import ALL, FACTORS, PAIRWISE, UNFENCED, Combination, all_pairs

if TYPE_CHECKING:
    from collections.abc import Sequence


def missing(rows: Sequence[Sequence[object]], factors: Sequence[Sequence[object]]) -> list[object]:
    """Return the pairs of values, of two factors by index, that no row has."""
    return [
        (one, first, other, second)
        for one, other in combinations(range(len(factors)), 2)
        for first, second in product(factors[one], factors[other])
        if not any(row[one] == first and row[other] == second for row in rows)
    ]


def fields(combination: Combination) -> tuple[object, ...]:
    return tuple(combination.options().values())


def test_every_pair_of_choices_is_served_in_every_run_of_the_tests() -> None:
    assert not missing([fields(one) for one in PAIRWISE], FACTORS)
    assert len(PAIRWISE) <= 8


def test_every_combination_is_in_the_matrix_once() -> None:
    assert len(ALL) == len(set(ALL)) == 2 * 2 * 3 * 2 * 2
    assert set(PAIRWISE) <= set(ALL)
    assert len(set(UNFENCED)) == 3 * 2 * 2
    assert all(one.overlap and one.fence == "off" for one in UNFENCED)


@pytest.mark.parametrize("sizes", [(2, 2), (3, 2, 4), (2, 2, 2, 2, 2, 2), (4, 1, 3), (5, 5, 2)])
def test_all_pairs_covers_factors_of_any_size(sizes: tuple[int, ...]) -> None:
    factors = [list(range(size)) for size in sizes]
    rows = all_pairs(factors)
    assert not missing(rows, factors)
    assert all(value < size for row in rows for value, size in zip(row, sizes, strict=True))
    assert rows == all_pairs(factors)


def test_a_set_that_lacks_a_pair_is_noticed() -> None:
    rows = all_pairs(FACTORS)
    lacking = [row for row in rows if not (row[0] is True and row[2] == "off")]
    assert (0, True, 2, "off") in missing(lacking, FACTORS)


def test_flags_and_options_say_the_same() -> None:
    flags = Combination(overlap=False, fence="coarse", graph="off", attention="native", prefix_cache=True).flags()
    assert " ".join(flags) == "--no-overlap --fence coarse --graph off --attention native --prefix-cache"
