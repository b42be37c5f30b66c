"""``Ledger``: all steps of a process, added up. Written on the serving thread, read from any.

One observer adds, whoever exports reads: at a scrape, once a second, or at the end. Its size depends on how many kinds
of step there are, not on how many steps. A reader may see a step half added; it never sees one twice or not at all.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from sglang_fence.catalogue import DURATION_BUCKETS
from sglang_fence.observe.observer import Observer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sglang_fence.contract import FallbackReason, FenceKind, ForwardMode, SharedReadEnds
    from sglang_fence.observe.record import Phase, StepRecord
    from sglang_fence.observe.trace import StepTrace

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
        self.counts[bucket_of(us)] += 1
        self.sum_us += us

    @property
    def count(self) -> int:
        """How many were added."""
        return sum(self.counts)


def bucket_of(us: float) -> int:
    """Which bucket takes ``us``: the first whose upper bound, 2^k µs, isn't below it."""
    return min((ceil(us) - 1).bit_length(), BUCKETS) if us > 1.0 else 0


class Cell:
    """Steps of one kind."""

    __slots__ = ("forward", "lost_slack_us", "lost_us", "slack", "steps", "wait")

    def __init__(self) -> None:
        self.steps = 0
        self.slack = Durations()
        self.wait = Durations()
        self.forward = Durations()
        self.lost_slack_us = 0.0
        self.lost_us = 0.0


@dataclass(slots=True)
class Facts:
    """What was decided at start."""

    config: Mapping[str, str] = field(default_factory=dict[str, str])
    """Values of the labels of ``sglang_fence_config_info``."""
    barrier_enabled: bool = False
    barrier_why: str = ""
    """A value of the catalogue's label ``why``."""
    declarations: tuple[tuple[str, ForwardMode, SharedReadEnds], ...] = ()
    timing_enabled: bool = False
    timing_why: str = ""
    """A value of the label ``why`` of ``sglang_fence_device_timing_enabled``."""
    timing_every: int = 1
    loop: str = ""
    """A value of the label ``loop``; empty: not told."""


@dataclass(slots=True)
class Health:
    """The observer, about itself. Whoever finds something out adds it here."""

    cost_ns: Counter[str] = field(default_factory=Counter[str])
    """Host time on the serving thread, by hook."""
    dropped_steps: Counter[str] = field(default_factory=Counter[str])
    """By cause."""
    unresolved: Counter[str] = field(default_factory=Counter[str])
    """By cause."""
    errors: Counter[str] = field(default_factory=Counter[str])
    """Errors of observers, by hook."""
    calibration_us: dict[str, float] = field(default_factory=dict[str, float])
    """Offsets, by values of the label ``offset``."""
    clock_error_ns: int = 0
    hooks: dict[str, str] = field(default_factory=dict[str, str])
    """What became of each function that a plugin hooks: target → state."""
    owner_changes: Counter[str] = field(default_factory=Counter[str])
    stale_publications: Counter[str] = field(default_factory=Counter[str])
    exporters: dict[str, Observer] = field(default_factory=dict[str, Observer])
    """Installed exporters by name, for their ``dropped_steps``."""


class Ledger(Observer):
    """Adds finished steps up by :class:`StepKind`."""

    def __init__(self) -> None:
        self.cells: dict[StepKind, Cell] = {}
        self.gaps: dict[str, Durations] = {"fence": Durations(), "host": Durations()}
        """Forward gaps, by who was the last to let the forward start."""
        self.phases: Counter[Phase] = Counter()
        self.clamps: Counter[str] = Counter()
        """By the catalogue's label ``duration``."""
        self.facts = Facts()
        self.health = Health()

    def run_started(self, facts: Facts) -> None:
        """Keep what was decided at start."""
        self.facts = facts

    def step_finished(self, record: StepRecord) -> None:
        """Count it."""
        kind = StepKind(
            record.mode,
            record.backend,
            record.declared,
            record.resolved,
            record.fence,
            record.reason,
            record.downgrade,
        )
        cell = self.cells.get(kind)
        if cell is None:
            cell = self.cells[kind] = Cell()
        cell.steps += 1
        for phase in record.phases:
            self.phases[phase] += 1
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
        if record.slack_us is not None:
            cell.slack.add(record.slack_us)
        if record.wait_us is not None:
            cell.wait.add(record.wait_us)
        if record.forward_us is not None:
            cell.forward.add(record.forward_us)
        if record.gap_us is not None and record.gap_last is not None:
            self.gaps[record.gap_last].add(record.gap_us)
        if record.lost_slack_us is not None:
            cell.lost_slack_us += record.lost_slack_us
        if record.lost_us is not None:
            cell.lost_us += record.lost_us
        for duration in record.clamped:
            self.clamps[duration] += 1
