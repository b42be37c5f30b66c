"""``StepProbe``: what the runtime calls. It writes numbers into a preallocated record and tells the observers.

Device times are read in bounded batches on the serving thread (:meth:`StepProbe.drain`), which the scheduler calls
between launches, never while a stream captures.
"""

from __future__ import annotations

from collections import deque
from contextlib import AbstractContextManager, nullcontext
from time import perf_counter_ns
from typing import TYPE_CHECKING, Protocol

from sglang_fence.contract import FallbackReason, FenceKind, ForwardMode, SharedReadEnds
from sglang_fence.observe.record import Phase, StepRecord
from sglang_fence.observe.timing import ObserverStream, StepTimers, TimingDevice

if TYPE_CHECKING:
    from sglang_fence.observe.observer import Observers

IN_FLIGHT = 64
"""Records: steps launched whose device times aren't read yet. Overlap keeps two in flight; the rest is slack."""

DRAIN_LIMIT = 4
"""Steps read per drain at the most."""


_UNHEARD = nullcontext()
"""A range that nobody listens to."""


class _Range(AbstractContextManager[None]):
    """Tells the observers of a range's beginning and end."""

    __slots__ = ("_name", "_observers", "_step")

    def __init__(self, observers: Observers, name: str, step: int) -> None:
        self._observers = observers
        self._name = name
        self._step = step

    def __enter__(self) -> None:
        for started in self._observers.range_started:
            started(self._name, self._step)

    def __exit__(self, *_: object) -> None:
        for ended in self._observers.range_ended:
            ended(self._name, self._step)


class VerdictLike(Protocol):
    """What the probe reads of a barrier's verdict."""

    @property
    def kind(self) -> FenceKind:
        """How the schedule stream was held back."""

    @property
    def reason(self) -> FallbackReason | None:
        """Why it was coarse."""

    @property
    def ends(self) -> SharedReadEnds:
        """The resolved end."""


class StepProbe:
    """Writes down each step.

    Args:
        observers: who hears of it.
        device: makes timing events; None where there are none, or nobody asked for device times.
        streams: forward, schedule and observer stream of the device; :meth:`add_forward_stream` takes further ones.
    """

    def __init__(
        self,
        observers: Observers,
        device: TimingDevice | None = None,
        streams: tuple[object, object, ObserverStream] | None = None,
    ) -> None:
        self.observers = observers
        self._streams = streams
        self._observer_of: dict[object, ObserverStream] = {}
        timed = device is not None and streams is not None
        records = [StepRecord(StepTimers(device) if timed and device is not None else None) for _ in range(IN_FLIGHT)]
        self._free = deque(records)
        self._pending: deque[StepRecord] = deque()
        self._record = StepRecord(None)
        self.unresolved = 0
        """Steps whose device times weren't read in time: more were in flight than there are records."""

    def add_forward_stream(self, forward: object, observer: ObserverStream) -> None:
        """Take up one more forward stream. It gets an observer stream of its own, so that none delays another's."""
        self._observer_of[forward] = observer

    def step_started(self, step: int, mode: ForwardMode, backend: str, batch_size: int, tokens: int) -> None:
        """A step's batch is ready; its forward is enqueued next."""
        if not self._free:
            self._give_up(self._pending.popleft())
        record = self._record = self._free.popleft()
        record.reset(step, mode, backend, batch_size, tokens)
        record.started_ns = perf_counter_ns()
        for hook in self.observers.step_started:
            hook(step)

    def resolved(self, phase: Phase) -> None:
        """The runner resolved the backend's declaration for the phase it is about to run."""
        record = self._record
        record.phases.append(phase)
        record.declared = phase.declared
        record.resolved = phase.resolved
        record.downgrade = phase.downgrade

    def launched(self) -> None:
        """The step's forward is enqueued whole."""
        self._record.launch_ns = perf_counter_ns()

    def range(self, name: str) -> AbstractContextManager[None]:
        """Mark a phase of the current step on the host; balanced also when the body raises."""
        observers = self.observers
        if not observers.range_started and not observers.range_ended:
            return _UNHEARD
        return _Range(observers, name, self._record.step)

    def reads_end(self, event: object | None, forward: object | None = None) -> None:
        """The step is enqueued whole; its shared reads end at ``event``, or (None) with it, or nobody will wait.

        ``forward`` is the stream that the step runs on; None: the first.
        """
        record = self._record
        if record.timers is not None and self._streams is not None:
            first, _, observer = self._streams
            forward = first if forward is None else forward
            record.timers.reads_end(forward, self._observer_of.get(forward, observer), event)
            record.timed = True

    def before_wait(self, event: object | None) -> None:
        """The schedule stream is about to wait for ``event``, or (None) for the forward stream, or for nothing.

        Stands for :meth:`reads_end` too where that wasn't called: nothing happens in between then.
        """
        record = self._record
        if record.timers is not None and self._streams is not None:
            if not record.timed:
                self.reads_end(event)
            record.timers.before_wait(self._streams[1])

    def after_wait(self, verdict: VerdictLike) -> None:
        """The wait is enqueued, and the step's fence decided."""
        record = self._record
        if record.timers is not None and self._streams is not None:
            record.timers.after_wait(self._streams[1])
        record.barrier_ns = perf_counter_ns()
        record.fence = verdict.kind
        record.reason = verdict.reason
        self._pending.append(record)
        for hook in self.observers.barrier_applied:
            hook(record)

    def no_barrier(self) -> None:
        """The loop that ran the step has no barrier."""
        self._pending.append(self._record)

    def drain(self, limit: int = DRAIN_LIMIT) -> int:
        """Read finished steps, ``limit`` at the most, those of one forward stream in order; return how many."""
        unfinished: list[StepRecord] = []
        busy: set[object] = set()
        count = 0
        while self._pending and count < limit:
            record = self._pending.popleft()
            if not self._read(record, busy):
                unfinished.append(record)
                continue
            self._finish(record)
            count += 1
        self._pending.extendleft(reversed(unfinished))
        return count

    @staticmethod
    def _read(record: StepRecord, busy: set[object]) -> bool:
        """Read a step's device times if they are there; streams found to be ``busy`` aren't asked again.

        A step without times stays behind whatever is older.
        """
        timers = record.timers
        if not record.timed or timers is None:
            return not busy
        if timers.forward in busy or not timers.ready():
            busy.add(timers.forward)
            return False
        if record.fence is not FenceKind.DISABLED:
            record.slack_us = timers.slack_us()
            record.wait_us = timers.wait_us()
        return True

    def flush(self) -> None:
        """Read what is left. The caller has synchronised the device, so that all of it is there."""
        while self.drain():
            pass
        while self._pending:
            self._give_up(self._pending.popleft())

    def close(self) -> None:
        """End the run."""
        self.flush()
        for hook in self.observers.run_ended:
            hook()

    def _give_up(self, record: StepRecord) -> None:
        self.unresolved += 1
        self._finish(record)

    def _finish(self, record: StepRecord) -> None:
        for hook in self.observers.step_finished:
            hook(record)
        self._free.append(record)
