"""Quick steps: those of the runtime that are like the one before, told by what they are made of and only counted.

What SGLang's plugin does in front of its hooks (:mod:`sglang_fence.sglang_plugin.repeating`) is done here in front of a
probe's own methods, by the compiled part alone. A fine step of one phase, whose mode, backend, phase and resolved end
are the same objects as those of the step before, is counted where that one was, and its slack and wait are taken by the
driver's own calls. All others go the general way; so does one that turns out not to be alike, from its beginning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sglang_fence.contract import FenceKind
from sglang_fence.observe.quick_rows import RowKeeper
from sglang_fence.observe.quick_times import QuickTimes, count_unread, make_events
from sglang_fence.observe.record import NO_STEP, StepRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglang_fence.contract import ForwardMode, SharedReadEnds
    from sglang_fence.native._quick import Stepping
    from sglang_fence.observe.device_times import DeviceTimes
    from sglang_fence.observe.ledger import Cell, Ledger, Route
    from sglang_fence.observe.probe import StepProbe
    from sglang_fence.observe.record import Phase
    from sglang_fence.observe.sampling import Sampler
    from sglang_fence.observe.timing import VerdictLike
    from sglang_fence.observe.tracing import Tracer

METHODS = (
    "step_started",
    "forward_started",
    "resolved",
    "end_event",
    "reads_end",
    "before_wait",
    "at_barrier",
    "after_wait",
)
"""Of a probe, in the order in which the compiled part takes them."""


class AlikeSteps:
    """What quick steps are made of, compared by identity, and where they are counted."""

    __slots__ = ("backend_name", "cell", "ends", "fine", "forward", "mode", "phase", "route")

    extended = reason = None
    """A draft-extend's phase, and why a fence was coarse: here, nothing and fine."""

    def __init__(self, record: StepRecord, place: tuple[Cell, Route], phase: Phase, forward: object) -> None:
        self.mode: ForwardMode = record.mode
        self.backend_name = record.backend
        self.phase = phase
        self.forward = forward
        """The forward stream of timed steps; None: not known, and none is timed."""
        self.ends: SharedReadEnds = record.resolved
        self.fine = FenceKind.FINE
        self.cell, self.route = place

    def is_still(self, record: StepRecord, place: tuple[Cell, Route], phase: Phase, forward: object) -> bool:
        """Whether it would be made of the same."""
        return (
            self.cell is place[0]
            and self.route is place[1]
            and self.phase is phase
            and self.forward is forward
            and self.mode is record.mode
            and self.backend_name is record.backend
            and self.ends is record.resolved
        )


class Quickening:
    """Recognises quick steps for one probe, and stands in front of its methods.

    Args:
        probe: whose.
        sampler: which steps it times and traces.
        times: what it takes device times with; None: it takes none.
        ledger: counts steps.
        tracer: is told of the newest fenced step; None: nobody asks.
        meter: how long it takes to look at the clock, in ns, and on which step in so many that is done.
    """

    def __init__(
        self,
        probe: StepProbe,
        sampler: Sampler,
        times: DeviceTimes | None,
        ledger: Ledger,
        tracer: Tracer | None,
        meter: tuple[int, int],
    ) -> None:
        from sglang_fence.native import _quick  # noqa: PLC0415 - it isn't there on every machine

        self._probe, self._sampler, self._times, self._ledger = probe, sampler, times, ledger
        self._asked_at = NO_STEP
        """The newest step that went the general way where steps are traced."""
        self._forward: object | None = None
        self._general: dict[str, Callable[..., Any]] = {name: getattr(probe, name) for name in METHODS}
        self._library = None if times is None else times.device.driver_library
        """The driver's; None: no times are taken, or it was tried."""
        events = [] if times is None or self._library is None else make_events(times.device)
        self._added = QuickTimes(ledger, probe.progress, events)
        lent = () if times is None else tuple(times.device.as_event(end) for end, *_ in events)
        self.steps: Stepping = _quick.Stepping(
            probe, tuple(self._general.values()), StepRecord(None), tracer, lent, probe.health.cost_ns, *meter
        )
        self.steps.demote = self._demote
        if probe.ring is not None:
            self.steps.keep(len(probe.ring.records))
            probe.ring.repeated = RowKeeper(self.steps)
        vars(probe).update({name: getattr(self.steps, name) for name in METHODS})

    def passed(self, step: int) -> int:
        """Return how many steps before ``step`` the general way knows nothing of. Asked once in each of its steps."""
        asked, self._asked_at = self._asked_at, step
        return 0 if asked == NO_STEP else max(0, step - asked - 1)

    def over(self, record: StepRecord, verdict: VerdictLike) -> None:
        """A step went the general way to its end. Those behind it may be like it."""
        try:
            self._learn(record, verdict)
        except Exception as error:  # noqa: BLE001 - observing must never end a step; it is counted and logged
            self.steps.arm(None)
            self._added.fail(f"recognising repeated steps: {error}", 0)

    def _learn(self, record: StepRecord, verdict: VerdictLike) -> None:
        probe, phases, place = self._probe, record.phases, self._ledger.place_of(record)
        if probe.timing and record.forward is not None:
            self._forward = record.forward
        published, times = verdict.published, self._times
        if (
            record.fence is not FenceKind.FINE
            or place is None
            or len(phases) != 1
            or published is None
            or published[0] is not record.resolved
            or not probe.counts_alone(self._ledger)
            or (times is not None and times.observer_of)
        ):
            if record.timed or probe.timing:
                self.steps.arm(self.steps.like, record.step + 1)  # more may be asked of the next because of this one
            return
        due, every = self._due(record.step)
        forward = self._forward if every else None
        alike = self.steps.like
        if not isinstance(alike, AlikeSteps) or not alike.is_still(record, place, phases[0], forward):
            alike = AlikeSteps(record, place, phases[0], forward)
        self.steps.arm(alike, due, every)

    def drain(self, limit: int) -> int:
        """Read the times of up to ``limit`` quick steps; return of how many. None while a stream captures."""
        times = self._times
        if not self.steps.pending or times is None or times.device.is_capturing():
            return 0
        return self.steps.drain(limit)

    def pause(self, *, unread: str | None = None) -> None:
        """Read all that is ready, and take no step for a quick one until the next that isn't is over.

        Args:
            unread: what the rest is counted as, which isn't read any more; None: it may still be.
        """
        steps = self.steps
        self.begin_again()  # what it is compared with is forgotten next
        steps.arm(None)
        self._sampler.pass_by(self.passed(steps.number + 1))
        self._asked_at = NO_STEP
        while steps.pending and self.drain(steps.pending):
            pass
        count_unread(steps, self._probe.health.unresolved, unread)

    def begin_again(self) -> None:
        """If the open step is a quick one, it isn't any more."""
        if self.steps.repeats:
            self._demote()

    def _due(self, step: int) -> tuple[int, int]:
        """The next step that goes the general way in any case; and each so-many-th before it is timed, 0: none."""
        probe = self._probe
        due, every = probe.due_beyond_slack if self._takes_times() else (probe.due, 0)
        if self._sampler.sampling.trace_ratio > 0.0:
            if self._asked_at == NO_STEP:  # it began before pause(), and ends behind it
                self._asked_at = step
            due = min(due, step + 1 + self._sampler.passing)
        return due, every

    def _takes_times(self) -> bool:
        if self.steps.times_taken:
            return True
        times, library = self._times, self._library
        if times is None or library is None or self._forward is None:
            return False
        self._library = None  # once: what failed isn't tried again
        self._added.take(self.steps, times, self._forward, library)
        return True

    def _demote(self) -> None:
        """Begin the open step the general way, and tell it what was told of it so far."""
        steps, general = self.steps, self._general
        alike, forward, resolved = steps.like, steps.forward, steps.has_resolved
        steps.repeats = False
        if not isinstance(alike, AlikeSteps):
            return
        general["step_started"](steps.number, alike.mode, alike.backend_name, steps.batch_size, steps.tokens)
        started_ns = steps.forget_row()
        if started_ns is not None:
            self._probe.general_record.started_ns = started_ns
        if forward is not None:
            self._probe.forward_enqueued(forward)
        if resolved:
            general["resolved"](alike.phase)
