"""The ways to serve that must all give the same tokens, and a few of them in which each pair of choices occurs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Combination:
    """Choices that must not change a token."""

    overlap: bool
    fence: str
    graph: str
    attention: str
    prefix_cache: bool

    def __str__(self) -> str:
        """Short enough for the name of a test."""
        overlap = "overlap" if self.overlap else "plain"
        cache = "cache" if self.prefix_cache else "nocache"
        return f"{overlap}-{self.fence}-{self.graph}-{self.attention}-{cache}"

    def options(self) -> dict[str, Any]:
        """As keywords of ``EngineOptions``."""
        return asdict(self)

    def flags(self) -> list[str]:
        """As options of ``sglang-fence run``."""
        return [
            "--overlap" if self.overlap else "--no-overlap",
            *("--fence", self.fence, "--graph", self.graph, "--attention", self.attention),
            "--prefix-cache" if self.prefix_cache else "--no-prefix-cache",
        ]


GRAPHS = ("full", "breakable", "off")
ATTENTION = ("native", "trtllm_mha")
FENCES = ("fine", "coarse")
ON_OFF = (True, False)
FACTORS: tuple[tuple[Any, ...], ...] = (ON_OFF, FENCES, GRAPHS, ATTENTION, ON_OFF)
"""Values of the fields of :class:`Combination`, in order, behind a fence that holds."""


def all_pairs(factors: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Choose rows so that any two values of any two factors stand in one row together; greedy, always the same rows."""
    candidates = list(product(*factors))
    wanted = {pair for row in candidates for pair in pairs_of(row)}
    rows: list[tuple[Any, ...]] = []
    while wanted:
        best = max(candidates, key=lambda row: len(wanted & pairs_of(row)))
        wanted -= pairs_of(best)
        rows.append(best)
    return rows


def pairs_of(row: Sequence[object]) -> set[tuple[tuple[int, object], tuple[int, object]]]:
    """Return all pairs of (factor, value) in a row."""
    return set(combinations(enumerate(row), 2))


ALL = [Combination(*row) for row in product(ON_OFF, FENCES, GRAPHS, ATTENTION, ON_OFF)]
PAIRWISE = [Combination(*row) for row in all_pairs(FACTORS)]
UNFENCED = [Combination(True, "off", *row) for row in product(GRAPHS, ATTENTION, ON_OFF)]  # noqa: FBT003 - overlap
"""Every way to overlap without a fence."""
