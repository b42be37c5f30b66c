"""``Ledger``: all steps of a process, added up. Written on the serving thread, read from any.

One observer adds, whoever exports reads: at a scrape, once a second, or at the end. Its size depends on how many kinds
of step there are, not on how many steps. A reader may see a step half added; it never sees one twice or not at all.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from sglang_fence.catalogue import DURATION_BUCKETS
from sglang_fence.contract import FenceKind, ForwardMode, SharedReadEnds
from sglang_fence.observe.numbers import Counted, Histogram, bounds_us
from sglang_fence.observe.observer import Observer
from sglang_fence.observe.standing import Facts, Health

if TYPE_CHECKING:
    from sglang_fence.contract import FallbackReason
    from sglang_fence.observe.record import Phase, StepRecord
    from sglang_fence.observe.trace import StepTrace

__all__ = ["BUCKETS", "Cell", "Durations", "Exemplar", "Facts", "Health", "Ledger", "StepKind", "bucket_of"]

BUCKETS = len(DURATION_BUCKETS)
"""Finite buckets; one more is for what is longer."""


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


class Durations(Histogram):
    """A histogram over the catalogue's buckets, in µs."""

    __slots__ = ("exemplars",)

    def __init__(self) -> None:
        super().__init__(BUCKETS)
        self.exemplars: dict[int, Exemplar] = {}
        """The newest by bucket."""


def bucket_of(us: float) -> int:
    """Which bucket takes ``us``: the first whose upper bound, 2^k µs, isn't below it."""
    return bisect_left(bounds_us(BUCKETS), us)


class Route(Counted):
    """One sequence of phases that steps of a kind went through, and how many did."""

    __slots__ = ("phases",)

    def __init__(self, phases: list[Phase]) -> None:
        self.phases = phases
        self.steps = 0


class Cell(Counted):
    """Steps of one kind."""

    __slots__ = ("forward", "lost_slack_us", "lost_us", "routes", "slack", "wait")

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


_NO_KIND = StepKind(
    ForwardMode.IDLE,
    "",
    SharedReadEnds.UNKNOWN,
    SharedReadEnds.UNKNOWN,
    FenceKind.ABSENT,
    None,
    None,
)


def _kind_of(step: StepRecord | StepTrace) -> StepKind:
    return StepKind(step.mode, step.backend, step.declared, step.resolved, step.fence, step.reason, step.downgrade)


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
        # Where the newest step of one phase was counted.
        self._phase: Phase | None = None
        self._kind = _NO_KIND
        self._cell, self._route = Cell(), Route([])

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
        phases = record.phases
        if (
            len(phases) == 1
            and phases[0] is self._phase
            and record.fence is self._kind.fence
            and record.resolved is self._kind.resolved
            and record.reason is self._kind.reason
            and record.mode is self._kind.mode
            and record.backend is self._kind.backend
        ):  # as the step before, as nearly all are
            cell, route = self._cell, self._route
        else:
            cell, route = self._find(record)
        cell.steps += 1
        route.steps += 1
        if record.timed:
            self.add_durations(cell, record)

    def place_of(self, record: StepRecord) -> tuple[Cell, Route] | None:
        """Return where a step was counted; None: it wasn't, or it has one phase and another kind was counted since."""
        kind, phases = self._kind, record.phases
        if len(phases) != 1:
            cell = self.cells.get(_kind_of(record))
            routes = [] if cell is None else [route for route in cell.routes if route.phases == phases]
            return (cell, routes[0]) if cell is not None and routes else None
        if (
            phases[0] is self._phase
            and record.fence is kind.fence
            and record.resolved is kind.resolved
            and record.reason is kind.reason
            and record.mode is kind.mode
            and record.backend is kind.backend
        ):
            return self._cell, self._route
        return None

    def _find(self, record: StepRecord) -> tuple[Cell, Route]:
        """Return where a step is counted, and keep it for the next: a phase says what was declared and downgraded."""
        kind = _kind_of(record)
        cell = self.cells.get(kind)
        if cell is None:
            cell = self.cells[kind] = Cell()
        phases = record.phases
        for known in cell.routes:
            if known.phases == phases:
                route = known
                break
        else:
            route = Route(phases.copy())
            cell.routes.append(route)
        if len(phases) == 1:
            self._phase, self._kind, self._cell, self._route = phases[0], kind, cell, route
        return cell, route

    @property
    def adds_durations_alone(self) -> bool:
        """Whether :meth:`add_slack_and_wait` does no more than its name says: nobody derived does more in it."""
        return type(self).add_slack_and_wait is Ledger.add_slack_and_wait

    def add_slack_and_wait(self, cell: Cell, mode: ForwardMode, backend: str, slack_us: float, wait_us: float) -> None:
        """Count in what is known of a timed fine step beside its kind, of which ``mode`` and ``backend`` are part."""
        del mode, backend
        cell.slack.add(slack_us)
        cell.wait.add(wait_us)

    def add_exemplar(self, trace: StepTrace, trace_id: str) -> None:
        """Say under which trace a sampled step can be found. From any thread; the step was counted before."""
        kind = _kind_of(trace)
        cell = self.cells.get(kind)
        if cell is None:
            return
        rows = [(cell.slack, trace.slack_us), (cell.wait, trace.wait_us), (cell.forward, trace.forward_us)]
        if trace.gap_last is not None:
            rows.append((self.gaps[trace.gap_last], trace.gap_us))
        for durations, us in rows:
            if us is not None:
                durations.exemplars[bucket_of(us)] = Exemplar(trace_id, us, trace.end_ns)

    def add_durations(self, cell: Cell, record: StepRecord) -> None:
        """Count the durations of a timed step in, where its kind is counted."""
        if (us := record.slack_us) is not None:
            cell.slack.add(us)
        if (us := record.wait_us) is not None:
            cell.wait.add(us)
        if (us := record.forward_us) is not None:
            cell.forward.add(us)
        if (us := record.gap_us) is not None and record.gap_last is not None:
            self.gaps[record.gap_last].add(us)
        if (us := record.gap_behind_us) is not None and record.gap_behind_last is not None:
            self.gaps[record.gap_behind_last].add(us)
        if (us := record.lost_slack_us) is not None:
            cell.lost_slack_us += us * record.weight
        if (us := record.lost_us) is not None:
            cell.lost_us += us * record.weight
        if record.clamped:
            for duration in record.clamped:
                self.clamps[duration] += 1
