"""Interleaved blocks: every variant once a round, in an order that turns, so that drift hits all alike."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Measured:
    """One variant over all rounds."""

    values: tuple[float, ...]
    """What each round gave."""
    ratios: tuple[float, ...]
    """Each round's value over the same round's value of the baseline."""

    @classmethod
    def of(cls, values: Sequence[float], base: Sequence[float]) -> Measured:
        """Compare each round's value with the baseline's of the same round."""
        return cls(tuple(values), tuple(value / other for value, other in zip(values, base, strict=True)))

    def against(self, base: Measured) -> Measured:
        """Return the same values with ratios to another variant's."""
        return Measured.of(self.values, base.values)

    @property
    def median(self) -> float:
        """Median of the values."""
        return statistics.median(self.values)

    @property
    def ratio(self) -> float:
        """Median of the ratios."""
        return statistics.median(self.ratios)

    @property
    def spread(self) -> tuple[float, float]:
        """Smallest and largest ratio."""
        return min(self.ratios), max(self.ratios)

    def to_json(self) -> dict[str, object]:
        """Return the figures."""
        return {"median": self.median, "values": list(self.values), "ratio": self.ratio, "spread": list(self.spread)}


def interleave(
    variants: Mapping[str, Callable[[], float]],
    *,
    rounds: int,
    baseline: str,
    on_block: Callable[[str], None] = lambda _: None,
) -> dict[str, Measured]:
    """Run each variant once a round and compare within the round.

    Args:
        variants: name → runs one block and returns its figure.
        rounds: how many; one more is run first and thrown away, as warm-up.
        baseline: the variant that ratios are against.
        on_block: called with the variant's name after each block.
    """
    rows = in_turns(variants, rounds=rounds, on_block=on_block)
    return {name: Measured.of([row[name] for row in rows], [row[baseline] for row in rows]) for name in variants}


def in_turns(
    variants: Mapping[str, Callable[[], T]],
    *,
    rounds: int,
    on_block: Callable[[str], None] = lambda _: None,
) -> list[dict[str, T]]:
    """Run each variant once a round, in an order that turns; return what each round gave, by variant.

    One round more is run first and thrown away, as warm-up.
    """
    names: Sequence[str] = list(variants)
    rows: list[dict[str, T]] = []
    for number in range(rounds + 1):
        turned = [*names[number % len(names) :], *names[: number % len(names)]]
        row: dict[str, T] = {}
        for name in turned:
            row[name] = variants[name]()
            on_block(name)
        if number:
            rows.append(row)
    return rows
