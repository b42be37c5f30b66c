"""``Ledger``: all steps of a process, added up. Written on the serving thread, read from any.

One observer adds, whoever exports reads: at a scrape, once a second, or at the end. Its size depends on how many kinds
of step there are, not on how many steps. A reader may see a step half added; it never sees one twice or not at all.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

from sglang_fence.catalogue import DURATION_BUCKETS
from sglang_fence.observe.observer import Observer
from sglang_fence.observe.standing import Facts, Health

if TYPE_CHECKING:
    from sglang_fence.contract import FallbackReason, FenceKind, ForwardMode, SharedReadEnds
    from sglang_fence.observe.record import Phase, StepRecord
    from sglang_fence.observe.trace import StepTrace

    # The fields of a StepKind, as a plain tuple: it finds the same cell, and is made in a fifth of the time.
    _Key: TypeAlias = tuple[
        ForwardMode, str, SharedReadEnds, SharedReadEnds, FenceKind, FallbackReason | None, str | None
    ]

__all__ = ["BUCKETS", "Cell", "Durations", "Exemplar", "Facts", "Health", "Ledger", "StepKind", "bucket_of"]

BUCKETS = len(DURATION_BUCKETS)
"""Finite buckets; one more is for what is longer."""

_BOUNDS_US = tuple(float(2**exponent) for exponent in range(BUCKETS))
"""The buckets' upper bounds in µs, exactly."""


class StepKind(NamedTuple):
    """What steps are told apart by."""

    mode: ForwardMode
    backend: str
    declared: SharedReadEnds
    resolved: SharedReadEnds
    fence: FenceKind
    reason: FallbackReason | None
    downgrade: str | None


class Exemplar(NamedTuple):
    """A traced step that fell into a bucket."""

    trace_id: str
    """32 hexadecimal digits."""
    us: float
    at_ns: int
    """Wall clock, since the Unix epoch."""


class Durations:
    """A histogram over the catalogue's buckets, in µs."""

    __slots__ = ("counts", "exemplars", "sum_us")

    def __init__(self) -> None:
        self.counts = [0] * (BUCKETS + 1)
        """Steps by bucket, not cumulated; the last is for what is longer than every bucket."""
        self.sum_us = 0.0
        self.exemplars: dict[int, Exemplar] = {}
        """The newest by bucket."""

    def add(self, us: float) -> None:
        """Count one in; ``us`` isn't negative."""
        self.counts[bisect_left(_BOUNDS_US, us)] += 1
        self.sum_us += us

    @property
    def count(self) -> int:
        """How many were added."""
        return sum(self.counts)


def bucket_of(us: float) -> int:
    """Which bucket takes ``us``: the first whose upper bound, 2^k µs, isn't below it."""
    return bisect_left(_BOUNDS_US, us)


class Route:
    """One sequence of phases that steps of a kind went through, and how many did."""

    __slots__ = ("phases", "steps")

    def __init__(self, phases: list[Phase]) -> None:
        self.phases = phases
        self.steps = 0


class Cell:
    """Steps of one kind."""

    __slots__ = ("forward", "lost_slack_us", "lost_us", "routes", "slack", "steps", "wait")

    def __init__(self) -> None:
        self.steps = 0
        self.slack = Durations()
        self.wait = Durations()
        self.forward = Durations()
        self.lost_slack_us = 0.0
        self.lost_us = 0.0
        self.routes: list[Route] = []
        """Few: what a step's phases are follows from its kind, nearly. Comparing lists is cheaper than hashing each
        phase, and a route only ever grows, so that a reader needs no lock."""


class Ledger(Observer):
    """Adds finished steps up by :class:`StepKind`."""

    def __init__(self) -> None:
        self.cells: dict[StepKind, Cell] = {}
        self.gaps: dict[str, Durations] = {"fence": Durations(), "host": Durations()}
        """Forward gaps, by who was the last to let the forward start."""
        self.clamps: Counter[str] = Counter()
        """By the catalogue's label ``duration``."""
        self.facts = Facts()
        self.health = Health()
        self._find = cast("dict[_Key, Cell]", self.cells).get

    @property
    def phases(self) -> Counter[Phase]:
        """How many of each phase were served, added up when asked."""
        total: Counter[Phase] = Counter()
        for cell in list(self.cells.values()):
            for route in list(cell.routes):
                for phase in route.phases:
                    total[phase] += route.steps
        return total

    def run_started(self, facts: Facts) -> None:
        """Keep what was decided at start."""
        self.facts = facts

    def step_finished(self, record: StepRecord) -> None:
        """Count it."""
        key = (
            record.mode,
            record.backend,
            record.declared,
            record.resolved,
            record.fence,
            record.reason,
            record.downgrade,
        )
        cell = self._find(key)
        if cell is None:
            cell = self.cells[StepKind(*key)] = Cell()
        cell.steps += 1
        phases = record.phases
        for route in cell.routes:
            if route.phases == phases:
                break
        else:
            route = Route(phases.copy())
            cell.routes.append(route)
        route.steps += 1
        if record.timed:
            self._add_durations(cell, record)

    def add_exemplar(self, trace: StepTrace, trace_id: str) -> None:
        """Say under which trace a sampled step can be found. From any thread; the step was counted before."""
        kind = StepKind(
            trace.mode,
            trace.backend,
            trace.declared,
            trace.resolved,
            trace.fence,
            trace.reason,
            trace.downgrade,
        )
        cell = self.cells.get(kind)
        if cell is None:
            return
        rows = [(cell.slack, trace.slack_us), (cell.wait, trace.wait_us), (cell.forward, trace.forward_us)]
        if trace.gap_last is not None:
            rows.append((self.gaps[trace.gap_last], trace.gap_us))
        for durations, us in rows:
            if us is not None:
                durations.exemplars[bucket_of(us)] = Exemplar(trace_id, us, trace.end_ns)

    def _add_durations(self, cell: Cell, record: StepRecord) -> None:
        if (us := record.slack_us) is not None:
            cell.slack.add(us)
        if (us := record.wait_us) is not None:
            cell.wait.add(us)
        if (us := record.forward_us) is not None:
            cell.forward.add(us)
        if (us := record.gap_us) is not None and record.gap_last is not None:
            self.gaps[record.gap_last].add(us)
        if (us := record.lost_slack_us) is not None:
            cell.lost_slack_us += us * record.weight
        if (us := record.lost_us) is not None:
            cell.lost_us += us * record.weight
        if record.clamped:
            for duration in record.clamped:
                self.clamps[duration] += 1
