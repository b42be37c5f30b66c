"""``StepProbe``: what the runtime calls. It writes numbers into a preallocated record and tells the observers.

Where nobody observes, :attr:`StepProbe.on` is false: the runtime then calls nothing, and :meth:`StepProbe.around` gives
functions back as they are. Device times are read in bounded batches on the serving thread (:meth:`StepProbe.drain`),
which the scheduler calls between launches, never while a stream captures.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import wraps
from time import perf_counter_ns
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from sglang_fence.contract import FenceKind, SharedReadEnds
from sglang_fence.observe.ledger import Health
from sglang_fence.observe.marks import Marks
from sglang_fence.observe.reading import Reader
from sglang_fence.observe.record import StepRecord
from sglang_fence.observe.sampling import Sampler, Sampling

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglang_fence.contract import ForwardMode
    from sglang_fence.observe.device_times import DeviceTimes
    from sglang_fence.observe.ledger import Facts
    from sglang_fence.observe.observer import Observers
    from sglang_fence.observe.record import Phase
    from sglang_fence.observe.timing import ObserverStream, VerdictLike


class _Range(AbstractContextManager[None]):
    """Tells observers of a range's beginning and end, and notes it where its step is traced."""

    __slots__ = ("_marks", "_name", "_observers", "_place", "_record", "_step")

    def __init__(self, observers: Observers, record: StepRecord, name: str) -> None:
        self._observers = observers
        self._record = record
        self._marks = record.marks
        self._name = name
        self._step = record.step
        self._place = -1

    def __enter__(self) -> None:
        for started in self._observers.range_started:
            started(self._name, self._step)
        if self._marks is not None:
            self._place = self._marks.begin(self._name, len(self._record.phases))

    def __exit__(self, *_: object) -> None:
        if self._marks is not None and self._record.step == self._step:
            self._marks.end(self._place)
        for ended in self._observers.range_ended:
            ended(self._name, self._step)


P = ParamSpec("P")
R = TypeVar("R")

IN_FLIGHT = 64
"""Records: steps launched whose device times aren't read yet. Overlap keeps two in flight; the rest is slack."""

DRAIN_LIMIT = 4
"""Steps read per drain at the most, and one traced one: about 40 µs."""

METER_EVERY = 17
"""The probe takes its own cost on each so-many-th step, and counts it so many times: no common factor with timing."""

_UNKNOWN_OR_EARLY = frozenset({SharedReadEnds.UNKNOWN, SharedReadEnds.PRE_REPLAY})
"""Ends of a phase behind which a coarse fence may stand without any event: the end of its metadata is noted."""


class StepProbe:
    """Writes down each step.

    Args:
        observers: who hears of it.
        times: what device times are taken with; None where there are no timing events, or nobody asked.
        sampling: which steps are timed and traced; may be changed while serving.
        health: where the probe counts what became of its own work.
        now: the host's clock in nanoseconds.
        live: whether tracing may be switched on later, so that ranges are heard from the start.
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
    ) -> None:
        self.observers = observers
        self.health = Health() if health is None else health
        self.on = observers.any
        """Whether anybody observes. Where nobody does, the runtime calls nothing of the probe."""
        sampling = Sampling() if sampling is None else sampling
        self.sampling = sampling
        self._sampler = Sampler(sampling)
        self._now = now
        self._times = times
        self._reader = Reader(observers, self.health, times, self._give_marks_back, IN_FLIGHT if self.on else 1)
        self._record = StepRecord(None)
        self._last_fenced: int | None = None
        self._preparations: dict[int, tuple[int, int]] = {}
        self._spare_marks: list[Marks] = []
        traces = live or sampling.trace_ratio > 0.0 or sampling.trace_coarse
        heard = bool(observers.range_started or observers.range_ended)
        self._ranges = self.on and (heard or traces)

    @property
    def unresolved(self) -> int:
        """Steps whose device times weren't read in time."""
        return sum(self.health.unresolved.values())

    @property
    def traced(self) -> bool:
        """Whether the current step is traced."""
        return self._record.traced

    def add_forward_stream(self, forward: object, observer: ObserverStream) -> None:
        """Take up one more forward stream. It gets an observer stream of its own, so that none delays another's."""
        if self._times is not None:
            self._times.observer_of[forward] = observer

    @property
    def timed(self) -> bool:
        """Whether device times are taken, on some steps at least."""
        return self._times is not None

    def run_started(self, facts: Facts) -> None:
        """The runtime is about to serve."""
        for hook in self.observers.run_started:
            hook(facts)

    # What the runtime calls, in the order of a step.

    def step_started(self, step: int, mode: ForwardMode, backend: str, batch_size: int, tokens: int) -> None:
        """A step's batch is ready; its forward is enqueued next."""
        metered = step % METER_EVERY == 0
        began = perf_counter_ns() if metered else 0
        reader, sampler = self._reader, self._sampler
        record = self._record = reader.take()
        record.reset(step, mode, backend, batch_size, tokens)
        record.started_ns = self._now()
        reader.idle = False
        timers = record.timers
        if timers is not None:
            if timers.dirty:
                timers.reset()
            record.timed = sampler.times(step)
        if sampler.sampling.traces:
            self._trace(record)
        for hook in self.observers.step_started:
            hook(step)
        if metered:
            self._meter("step_started", began)

    def link(self, traceparents: tuple[str, ...]) -> None:
        """Say which requests the step serves, by the W3C ``traceparent`` they came with; for traced steps."""
        self._record.links = traceparents

    def forward_started(self, forward: object) -> None:
        """Nothing of the step is on its forward stream yet; whatever it waits for there is."""
        record = self._record
        previous = self._reader.follow(record, forward)
        wanted = record.timed or (previous is not None and previous.timed and previous.fence is FenceKind.COARSE)
        if record.marks is not None:
            if record.traced:
                record.marks.on(forward)
            wanted = wanted or record.timers is not None
        if wanted and record.timers is not None:
            record.host_start_ns = self._now()
            record.timers.record_start(forward)

    def resolved(self, phase: Phase) -> None:
        """The runner resolved the backend's declaration, right behind the metadata prepared outside the graph."""
        record = self._record
        record.phases.append(phase)
        record.declared = phase.declared
        record.resolved = phase.resolved
        record.downgrade = phase.downgrade
        if record.timed and phase.resolved in _UNKNOWN_OR_EARLY and record.forward is not None:
            timers = record.timers
            if timers is not None:
                timers.record_metadata(record.forward)

    def launched(self) -> None:
        """The step's forward is enqueued whole."""
        record = self._record
        if record.timed:
            record.launch_ns = self._now()

    def reads_end(self, verdict: VerdictLike, event: object | None, forward: object) -> None:
        """The step is enqueued whole on ``forward``, and its fence decided.

        ``event`` is what a fine fence is going to wait for, or where the reads of a coarse step would have ended; None:
        not known.
        """
        record = self._record
        metered = record.step % METER_EVERY == 0
        began = perf_counter_ns() if metered else 0
        record.fence = verdict.kind
        record.reason = verdict.reason
        if record.marks is not None and not record.traced:
            self._trace_if_coarse(record)
        times, timers = self._times, record.timers
        if times is not None and timers is not None:
            if record.timed:
                timers.record_end(forward)
                if event is not None:
                    timers.copy_released(event, times.observer_of.get(forward, times.observer))
            elif self._sampler.times(record.step + 1):
                timers.record_end(forward)  # where the next step's gap begins
        if metered:
            self._meter("reads_end", began)

    def before_wait(self) -> None:
        """The schedule stream is about to wait, or would be."""
        record = self._record
        if record.timed and record.timers is not None and self._times is not None:
            record.timers.record_wait(self._times.schedule)

    def after_wait(self, verdict: VerdictLike) -> None:
        """The wait is enqueued."""
        record = self._record
        metered = record.step % METER_EVERY == 0
        began = perf_counter_ns() if metered else 0
        record.barrier_ns = self._now()
        published = verdict.published
        if published is not None:
            record.resolved, record.bound_record = published
        if record.fence in {FenceKind.FINE, FenceKind.COARSE}:
            self._last_fenced = record.step
        self._reader.add(record)
        for hook in self.observers.barrier_applied:
            hook(record)
        if metered:
            self._meter("after_wait", began)

    def no_barrier(self) -> None:
        """The loop that ran the step has no barrier."""
        record = self._record
        if record.timed and record.timers is not None and record.forward is not None:
            record.timers.record_end(record.forward)
        if record.marks is not None and not record.traced:
            self._trace_if_coarse(record)
        self._reader.add(record)

    def drain(self, limit: int = DRAIN_LIMIT) -> int:
        """Read finished steps, ``limit`` at the most, those of one forward stream in order; return how many."""
        metered = self._record.step % METER_EVERY == 0
        began = perf_counter_ns() if metered else 0
        count = self._reader.drain(limit)
        if metered:
            self._meter("drain", began)
        return count

    def idle(self) -> None:
        """Nothing is launched soon: what waits for the next forward's start goes without, and no gap spans this."""
        self._reader.idle = True
        self.drain()
        self._reader.forget()

    def flush(self) -> None:
        """Read what is left. The caller has synchronised the device, so that all of it is there."""
        self._reader.flush(DRAIN_LIMIT)

    def close(self) -> None:
        """End the run."""
        self.flush()
        for hook in self.observers.run_ended:
            hook()

    # Ranges.

    def around(self, name: str, function: Callable[P, R]) -> Callable[P, R]:
        """Mark each call of ``function`` as a range, balanced also when it raises; itself where nobody listens."""
        if not self._ranges:
            return function

        observers = self.observers

        @wraps(function)
        def observed(*args: P.args, **kwargs: P.kwargs) -> R:
            if self._record.marks is None and not observers.range_started:
                return function(*args, **kwargs)
            with self.range(name):
                return function(*args, **kwargs)

        return observed

    def around_preparation(self, function: Callable[[int], R]) -> Callable[[int], R]:
        """As :meth:`around` for ``schedule``: ``function`` takes the number of the step that it prepares."""
        if not self._ranges:
            return function

        @wraps(function)
        def observed(step: int) -> R:
            began = self._now()
            self._tell(self.observers.range_started, "schedule", step)
            try:
                return function(step)
            finally:
                self._tell(self.observers.range_ended, "schedule", step)
                self._preparations[step] = (began, self._now())

        return observed

    def range(self, name: str) -> AbstractContextManager[None]:
        """Mark a phase of the current step; balanced also when the body raises. On the hot path, use :meth:`around`."""
        return _Range(self.observers, self._record, name)

    @staticmethod
    def _tell(hooks: tuple[Callable[[str, int], None], ...], name: str, step: int) -> None:
        for hook in hooks:
            hook(name, step)

    def _trace(self, record: StepRecord) -> None:
        """Decide whether the step is traced, and keep its ranges if it is or may be."""
        preparation = self._preparations.pop(record.step, None)
        record.traced = self._sampler.traces()
        if record.traced and record.timers is not None:
            record.timed = True
        if not (record.traced or self.sampling.trace_coarse):
            return
        record.waited_for = self._last_fenced
        if not self._spare_marks:
            self._spare_marks.append(Marks(self._now, None if self._times is None else self._times.device))
        marks = record.marks = self._spare_marks.pop()
        marks.reset()
        if preparation is not None:
            record.started_ns, ended = preparation
            marks.add_host("schedule", record.started_ns, ended)

    def _trace_if_coarse(self, record: StepRecord) -> None:
        """Ranges were kept in case that the step is coarse. If it isn't, they are dropped."""
        if record.fence is FenceKind.COARSE:
            record.traced = True
            record.timed = record.timers is not None
        else:
            self._give_marks_back(record)

    def _give_marks_back(self, record: StepRecord) -> None:
        if record.marks is not None:
            self._spare_marks.append(record.marks)
            record.marks = None

    def _meter(self, hook: str, began: int) -> None:
        self.health.cost_ns[hook] += METER_EVERY * (perf_counter_ns() - began)
