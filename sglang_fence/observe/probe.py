"""``StepProbe``: what the runtime calls. It writes numbers into a preallocated record and tells the observers.

Three attributes say what has to be called, so that a step pays for what is asked of it and no more:

* :attr:`StepProbe.on`: somebody observes. Where nobody does, the runtime calls nothing, and :meth:`StepProbe.around`
  gives functions back as they are.
* :attr:`StepProbe.timing`: device moments of the current step are taken, since it is timed or traced, or since a gap
  of such a step begins or ends with it. All other steps are counted, and are over at their barrier.
* :attr:`StepProbe.pending`: device times may have come in, to be read in bounded batches (:meth:`StepProbe.drain`).
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING

from sglang_fence.contract import FenceKind, SharedReadEnds
from sglang_fence.observe.behind import Behind
from sglang_fence.observe.choosing import METER_EVERY, meter_cost_ns
from sglang_fence.observe.flight.progress import Progress
from sglang_fence.observe.ledger import Health
from sglang_fence.observe.quickening import Quickening
from sglang_fence.observe.reading import DRAIN_LIMIT, Reader
from sglang_fence.observe.record import NOT_YET, UNKNOWN_OR_EARLY, StepRecord
from sglang_fence.observe.sampling import START_EVERY, Sampler, Sampling
from sglang_fence.observe.tracing import Tracer

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglang_fence.contract import ForwardMode
    from sglang_fence.observe.device_times import DeviceTimes
    from sglang_fence.observe.flight.ring import FlightRing
    from sglang_fence.observe.ledger import Facts, Ledger
    from sglang_fence.observe.observer import Observers
    from sglang_fence.observe.record import Phase
    from sglang_fence.observe.timing import ObserverStream

IN_FLIGHT = 64
"""Records: steps launched whose device times aren't read yet. Overlap keeps two in flight; the rest is slack."""


class StepProbe(Behind):
    """Writes down each step.

    Args:
        observers: who hears of it.
        times: what device times are taken with; None where there are no timing events, or nobody asked.
        sampling: which steps are timed and traced; may be changed while serving.
        health: where the probe counts what became of its own work.
        now: the host's clock in nanoseconds.
        live: whether tracing may be switched on later, so that ranges are heard from the start.
        ring: the flight recorder's; None: there is none.
        start_every: the start of a forward is timed on each so-many-th step at the most; in virtual time on each.
    """

    def __init__(
        self,
        observers: Observers,
        times: DeviceTimes | None = None,
        *,
        sampling: Sampling | None = None,
        health: Health | None = None,
        now: Callable[[], int] = perf_counter_ns,
        live: bool = False,
        ring: FlightRing | None = None,
        start_every: int = START_EVERY,
    ) -> None:
        self.observers = observers
        self.health = Health() if health is None else health
        self.on = observers.any
        """Whether anybody observes."""
        self.timing = False
        """Whether device moments of the current step are taken."""
        self.pending = False
        """Whether enough steps wait for their device times, so that it is worth while to look."""
        self.sampling = sampling = Sampling() if sampling is None else sampling
        self._sampler = Sampler(sampling, 1 if times is None or times.clock.virtual else start_every)
        self._now = now
        self._times = times
        self.timed = times is not None
        """Whether device times are taken, on some steps at least."""
        self._tracer = Tracer(self._sampler, now, times)
        self.progress = Progress()
        self._reader = Reader(observers, self.health, times, self._tracer, IN_FLIGHT if self.on else 1, self.progress)
        self.ring, self.recording = ring, self.on and ring is not None
        self._light = (StepRecord(None),) if ring is None else ring.records
        """Carry the steps that are only counted, each of which is over before the next begins."""
        self._lights = len(self._light)
        self._record = self._light[0]
        self._since = self._newest = -1
        """The newest step that is more than counted, and the first from which on all are."""
        self._due: float = 0
        """The next step to be looked at: its device moments are taken in turn, or it may be traced."""
        self._full_next = False
        self._quick: Quickening | None = None
        self._looks = live or self.timed or sampling.traces
        self._metered = False
        self._meter_ns = meter_cost_ns()
        heard = bool(observers.range_started or observers.range_ended)
        self._ranges = self.on and (heard or live or sampling.traces)

    @property
    def unresolved(self) -> int:
        """Steps whose device times weren't read in time."""
        return sum(self.health.unresolved.values())

    def quicken(self, ledger: Ledger) -> None:
        """Let the compiled part, which is there, count steps that are like the one before.

        Args:
            ledger: the observer that counts.
        """
        tracer = self._tracer if self._ranges else None
        self._quick = Quickening(self, self._sampler, self._times, ledger, tracer, (self._meter_ns, METER_EVERY))

    def add_forward_stream(self, forward: object, observer: ObserverStream) -> None:
        """Take up one more forward stream. It gets an observer stream of its own, so that none delays another's."""
        if self._times is not None:
            self._times.observer_of[forward] = observer

    def run_started(self, facts: Facts) -> None:
        """The runtime is about to serve."""
        for hook in self.observers.run_started:
            hook(facts)

    def step_started(self, step: int, mode: ForwardMode, backend: str, batch_size: int, tokens: int) -> None:
        """A step's batch is ready; its forward is enqueued next."""
        self._metered = metered = step % METER_EVERY == 0
        began = perf_counter_ns() if metered else 0
        if step < self._due:
            record, self.timing = self._light[step % self._lights], False
        else:
            record = self._choose(step)
        self._record = record
        record.step = step
        record.mode = mode
        record.backend = backend
        record.batch_size = batch_size
        record.tokens = tokens
        record.phases.clear()
        record.declared = record.resolved = SharedReadEnds.UNKNOWN
        record.downgrade = record.reason = record.bound_record = None
        record.fence = FenceKind.ABSENT
        if self.recording:
            record.event_id = None
            record.launch_ns = record.entered_ns = record.barrier_ns = NOT_YET
            if not self.timing:
                record.started_ns = self._now()
        for hook in self.observers.step_started:
            hook(step)
        if metered:
            self._meter("step_started", began, perf_counter_ns())

    def forward_started(self, forward: object) -> None:
        """Nothing of the step is on its forward stream yet; whatever it waits for there is. Asked for by ``timing``."""
        record = self._record
        if not self.timing:
            return
        began = perf_counter_ns() if self._metered else 0
        previous = self._reader.follow(record, forward, self._since)
        timers, marks = record.timers, record.marks
        if marks is not None and record.traced:
            marks.on(forward)
        if timers is not None and (record.wants_start or (previous is not None and previous.wants_next)):
            record.is_written = True
            record.host_start_ns = self._now()
            timers.record_start(forward)
        if began:
            self._meter("forward_started", began, perf_counter_ns())

    def forward_enqueued(self, forward: object) -> None:
        """The step is on its forward stream already, so that nothing can be said of its start.

        The start of the one behind it may still be compared with its end.
        """
        record = self._record
        if self.timing:
            record.wants_start = False
            self._reader.follow(record, forward, self._since)

    def resolved(self, phase: Phase) -> None:
        """The runner resolved the backend's declaration, right behind the metadata prepared outside the graph."""
        record = self._record
        record.phases.append(phase)
        record.declared = phase.declared
        record.resolved = phase.resolved
        record.downgrade = phase.downgrade
        if self.timing and phase.resolved in UNKNOWN_OR_EARLY and (record.timed or record.marks is not None):
            timers = record.timers
            if timers is not None and record.forward is not None:
                timers.record_metadata(record.forward)

    def drain(self, limit: int = DRAIN_LIMIT) -> int:
        """Read finished steps, those of one forward stream in order; return how many."""
        began = perf_counter_ns() if self._metered else 0
        count = self._reader.drain(limit)
        if self._quick is not None:
            count += self._quick.drain(limit)
        self.pending = self._reader.ready
        if began:
            self._meter("drain", began, perf_counter_ns())
        return count

    def idle(self) -> None:
        """Nothing is launched soon: what waits for the next forward's start goes without, and no gap spans this."""
        self._reader.idle()
        if self._quick is not None:
            self._quick.pause()
        self._plan(self._record.step)
        self._full_next = self.pending = False

    def flush(self) -> None:
        """Read what is left. The caller has synchronised the device, so that all of it is there."""
        self._reader.flush(DRAIN_LIMIT)
        if self._quick is not None:
            self._quick.pause(unread="end")
        self.progress.settle(self._now())
        self.pending = False
        self._due = 0  # who serves on may count its steps from 0 again

    def close(self) -> None:
        """End the run."""
        self.flush()
        for hook in self.observers.run_ended:
            hook()
