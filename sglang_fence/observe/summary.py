"""``Summary``: a ledger that also keeps samples, for the table and the JSON of ``sglang-fence run``."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from math import ceil, exp, floor, log, log1p
from random import Random
from typing import TYPE_CHECKING

from sglang_fence.contract import FenceKind
from sglang_fence.observe.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sglang_fence.contract import FallbackReason, ForwardMode
    from sglang_fence.observe.ledger import Cell, StepKind
    from sglang_fence.observe.record import Phase, StepRecord

SAMPLES = 8192
"""Durations kept of each kind: percentiles are exact up to here, and estimates from a fair sample beyond."""

_SEED = 8192  # the same sample for the same run


class Reservoir:
    """A fair sample of ``most`` values out of however many come: each has the same chance to be in it.

    Once it is full it draws how many values to pass over until the next that it takes in (Li's algorithm L, 1994),
    instead of drawing for each.
    """

    __slots__ = ("_most", "_random", "_takes", "_weight", "seen", "values")

    def __init__(self, most: int = SAMPLES) -> None:
        self._most = most
        self._random = Random(_SEED)  # noqa: S311 - no secret
        self.seen = 0
        """How many came."""
        self.values: list[float] = []
        self._weight = 1.0
        self._takes = most
        """Which value is taken in next."""

    def add(self, value: float) -> None:
        """Take one in, or leave it."""
        self.seen = seen = self.seen + 1
        if seen < self._takes:
            if seen <= self._most:
                self.values.append(value)
            return
        if seen <= self._most:
            self.values.append(value)
        else:
            self.values[self._random.randrange(self._most)] = value
        # 1 - random() is never 0, whose logarithm there is none of.
        self._weight *= exp(log(1.0 - self._random.random()) / self._most)
        self._takes = seen + 1 + floor(log(1.0 - self._random.random()) / log1p(-self._weight))


def pooled(reservoirs: Iterable[Reservoir]) -> list[float]:
    """Join samples so that each stands for as many values as every other: of a fuller one only a part is taken.

    The part is drawn, since values lie in the order in which they came: its beginning would speak for a run's first
    steps alone.
    """
    given = [reservoir for reservoir in reservoirs if reservoir.seen]
    share = min((len(one.values) / one.seen for one in given), default=1.0)
    joined: list[float] = []
    for one in given:
        count = ceil(one.seen * share)
        whole = count >= len(one.values)
        joined += one.values if whole else Random(_SEED).sample(one.values, count)  # noqa: S311 - no secret
    return joined


@dataclass(slots=True)
class ModeSummary:
    """Steps of one forward mode under one backend. Durations in µs."""

    steps: int = 0
    declared: Counter[str] = field(default_factory=Counter[str])
    resolved: Counter[str] = field(default_factory=Counter[str])
    fence: Counter[str] = field(default_factory=Counter[str])
    reasons: Counter[str] = field(default_factory=Counter[str])
    downgrades: Counter[str] = field(default_factory=Counter[str])
    lost_us: float = 0.0
    lost_from: int = 0
    """Coarse steps of which lost time is known; each of them counts for as many as it stands for."""
    slack_us: list[float] = field(default_factory=list[float])
    wait_us: list[float] = field(default_factory=list[float])

    @property
    def known_lost_us(self) -> float | None:
        """The lost time; None where there were coarse steps, and it is known of none. Without any, nothing was lost."""
        return self.lost_us if self.lost_from or not self.fence[FenceKind.COARSE.value] else None

    def add(self, kind: StepKind, cell: Cell) -> None:
        """Add the steps of one kind."""
        steps = cell.steps
        self.steps += steps
        self.declared[kind.declared.name] += steps
        self.resolved[kind.resolved.name] += steps
        self.fence[kind.fence.value] += steps
        if kind.reason is not None:
            self.reasons[kind.reason.value] += steps
        if kind.downgrade is not None:
            self.downgrades[kind.downgrade] += steps
        self.lost_us += cell.lost_us


@dataclass(slots=True)
class _Cost:
    """Coarse steps of one mode and reason."""

    steps: int = 0
    lost_us: float = 0.0
    lost_slack_us: float = 0.0
    known: Counter[str] = field(default_factory=Counter[str])

    def add(self, cell: Cell) -> None:
        self.steps += cell.steps
        self.lost_us += cell.lost_us
        self.lost_slack_us += cell.lost_slack_us

    def to_json(self) -> dict[str, int | float | None]:
        return {
            "steps": self.steps,
            "lost_us": round(self.lost_us, 3) if self.known["lost"] else None,
            "lost_from": self.known["lost"],
            "lost_slack_us": round(self.lost_slack_us, 3) if self.known["lost_slack"] else None,
            "lost_slack_from": self.known["lost_slack"],
        }


class Summary(Ledger):
    """Adds finished steps up, and samples their durations by (mode, backend)."""

    def __init__(self) -> None:
        super().__init__()
        self._slack: defaultdict[tuple[str, str], Reservoir] = defaultdict(Reservoir)
        self._wait: defaultdict[tuple[str, str], Reservoir] = defaultdict(Reservoir)
        self._costed: Counter[tuple[str, str, FallbackReason | None, str]] = Counter()
        """Steps that are in a sum of what was lost, by mode, backend and reason, and by which sum."""

    def add_durations(self, cell: Cell, record: StepRecord) -> None:
        """Count them in, and sample them."""
        super().add_durations(cell, record)
        key = record.mode, record.backend  # a mode is its text; taking that out costs more than the rest
        if record.slack_us is not None:
            self._slack[key].add(record.slack_us)
        if record.wait_us is not None:
            self._wait[key].add(record.wait_us)
        if record.lost_slack_us is not None and record.weight:  # of coarse steps alone, which are few
            self._costed[*key, record.reason, "lost_slack"] += 1
            if record.lost_us is not None:
                self._costed[*key, record.reason, "lost"] += 1

    def add_slack_and_wait(self, cell: Cell, mode: ForwardMode, backend: str, slack_us: float, wait_us: float) -> None:
        """Count them in, and sample them."""
        super().add_slack_and_wait(cell, mode, backend, slack_us, wait_us)
        key = mode, backend
        self._slack[key].add(slack_us)
        self._wait[key].add(wait_us)

    @property
    def modes(self) -> dict[tuple[str, str], ModeSummary]:
        """Steps by (mode, backend), in order of their first."""
        keys = dict.fromkeys((kind.mode.value, kind.backend) for kind in self.cells)
        return {key: self._of([key]) for key in keys}

    def by_mode(self) -> dict[str, ModeSummary]:
        """Backends of one mode together."""
        keys: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
        for mode, backend in self.modes:
            keys[mode].append((mode, backend))
        return {mode: self._of(own) for mode, own in keys.items()}

    def total(self) -> ModeSummary:
        """All modes together."""
        return self._of(list(self.modes))

    def fallbacks(self) -> list[dict[str, str | int | float | None]]:
        """Coarse steps by mode and reason, and what they cost; the dearest first.

        A cost that is known of no step is None. ``lost_from`` and ``lost_slack_from`` say of how many steps it is
        known; each of them counts for as many as it stands for.
        """
        found: dict[tuple[str, str], _Cost] = {}
        for kind, cell in self.cells.items():
            if kind.reason is not None:
                found.setdefault((kind.mode.value, kind.reason.value), _Cost()).add(cell)
        for (mode, _, reason, what), steps in self._costed.items():
            cost = found.get((mode, "" if reason is None else reason.value))
            if cost is not None:
                cost.known[what] += steps
        rows = sorted(found.items(), key=lambda row: (-row[1].lost_us, -row[1].lost_slack_us, row[0]))
        return [{"mode": mode, "reason": reason, **cost.to_json()} for (mode, reason), cost in rows]

    def phases_by_mode(self) -> dict[tuple[str, Phase], int]:
        """Phases by the mode of their step, in order of their first appearance."""
        counts: Counter[tuple[str, Phase]] = Counter()
        for kind, cell in self.cells.items():
            for route in cell.routes:
                for phase in route.phases:
                    counts[kind.mode.value, phase] += route.steps
        return dict(counts)

    def _of(self, keys: list[tuple[str, str]]) -> ModeSummary:
        summary = ModeSummary()
        for kind, cell in self.cells.items():
            if (kind.mode.value, kind.backend) in keys:
                summary.add(kind, cell)
        summary.lost_from = sum(
            steps
            for (mode, backend, _, what), steps in self._costed.items()
            if what == "lost" and (mode, backend) in keys
        )
        summary.slack_us = pooled(self._slack[key] for key in keys if key in self._slack)
        summary.wait_us = pooled(self._wait[key] for key in keys if key in self._wait)
        return summary


def percentile(values: Sequence[float], share: float) -> float | None:
    """The value below which ``share`` of ``values`` lie (nearest rank); None for an empty sequence."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, ceil(share * len(ordered)) - 1)]


def percentiles(values: Sequence[float]) -> dict[str, float | None]:
    """p50, p90, p99 and the maximum."""
    return {
        "p50": percentile(values, 0.5),
        "p90": percentile(values, 0.9),
        "p99": percentile(values, 0.99),
        "max": max(values, default=None),
    }
