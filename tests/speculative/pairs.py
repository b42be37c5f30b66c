"""Few combinations in which every pair of values of two parameters occurs."""

from __future__ import annotations

from itertools import combinations, product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

Row = tuple[str, ...]
Pair = tuple[int, str, int, str]


def pairs_of(row: Row) -> set[Pair]:
    """Name each two parameters' places and values."""
    return {(one, row[one], other, row[other]) for one, other in combinations(range(len(row)), 2)}


def all_pairs(parameters: Sequence[Sequence[str]]) -> set[Pair]:
    """Return every pair of values that two parameters can have."""
    return set().union(*(pairs_of(row) for row in product(*parameters)))


def pairwise(parameters: Sequence[Sequence[str]]) -> list[Row]:
    """Take the combination that covers most of what is still missing, until nothing is."""
    missing = all_pairs(parameters)
    rows = list(product(*parameters))
    taken: list[Row] = []
    while missing:
        best = max(rows, key=lambda row: len(pairs_of(row) & missing))
        taken.append(best)
        missing -= pairs_of(best)
    return taken
