"""``Fencing``: the part of a probe that hears of a step's fence, and ends the step behind it."""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from sglang_fence.contract import FenceKind
from sglang_fence.observe.choosing import Choosing
from sglang_fence.observe.flight.recording import Recording
from sglang_fence.observe.moments import END, WAIT
from sglang_fence.observe.record import FENCED

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglang_fence.observe.record import StepRecord
    from sglang_fence.observe.timing import VerdictLike


class Fencing(Choosing, Recording):
    """F, R and A are taken here; a step that is only counted is over here."""

    pending: bool

    def end_event(self) -> Any:  # noqa: ANN401 - an event of the device, or None
        """Return the event to record behind the step's forward work, where one serves both runtime and probe.

        None: the runtime makes one, and the probe records its own. Asked for by ``timing``.
        """
        record = self._record
        timers = record.timers
        if timers is None or timers.end_event is None:
            return None
        if not record.timed and not self._wants_end_before(record.step + 1):
            return None
        timers.recorded |= END
        return timers.end_event

    def reads_end(self, verdict: VerdictLike, event: object | None, forward: object) -> bool:
        """The step is enqueued whole on ``forward``, and its fence decided. Asked for by ``timing``.

        ``event`` is what a fine fence is going to wait for, or where the reads of a coarse step would have ended; None:
        not known.

        Returns whether :meth:`before_wait` has something to do: often, all is done here.
        """
        began = perf_counter_ns() if self._metered else 0
        record = self._record
        record.fence = verdict.kind
        if record.marks is not None and not record.traced:
            self._tracer.keep_if_coarse(record)
        times, timers, left = self._times, record.timers, False
        if times is not None and timers is not None:
            recorded = timers.recorded
            if record.timed and event is not None:
                observer_of = times.observer_of
                observer = observer_of.get(forward, times.observer) if observer_of else times.observer
                recorded |= timers.moments.take(None if recorded & END else forward, observer, event, times.schedule)
                timers.recorded = recorded
                left = not recorded & WAIT
            else:
                left = record.timed
                if not recorded & END and (left or self._wants_end_before(record.step + 1)):
                    timers.record_end(forward)
        if began:
            self._meter("reads_end", began, perf_counter_ns())
        return left

    def before_wait(self) -> None:
        """The schedule stream is about to wait, or would be. Asked for by what :meth:`reads_end` returned."""
        began = perf_counter_ns() if self._metered else 0
        record = self._record
        timers, times = record.timers, self._times
        if record.timed and timers is not None and times is not None and not timers.recorded & WAIT:
            timers.record_wait(times.schedule)
        if began:
            self._meter("before_wait", began, perf_counter_ns())

    def after_wait(self, verdict: VerdictLike) -> None:
        """The wait is enqueued."""
        began = perf_counter_ns() if self._metered else 0
        record = self._record
        record.barrier_ns = self._now()
        if not self.recording:  # at_barrier() has written it down otherwise
            record.fence = verdict.kind
            record.reason = verdict.reason
            published = verdict.published
            if published is not None:
                record.resolved, record.bound_record = published
        if self._ranges and record.fence in FENCED:
            self._tracer.last_fenced = record.step
        observers = self.observers
        for hook in observers.barrier_applied:
            hook(record)
        if not self.timing:  # over; as _end() has it, but without a guard around each observer
            told: Callable[[StepRecord], None] | None = None
            try:
                for told in observers.finishing:
                    told(record)
            except Exception as error:  # noqa: BLE001 - an observer must never end a step; it is counted and logged
                observers.go_on_finishing(told, record, error)
        else:
            self._end(record)
        if self._quick is not None:
            self._quick.over(record, verdict)
        if began:
            self._meter("after_wait", began, perf_counter_ns())

    def no_barrier(self) -> None:
        """The loop that ran the step has no barrier."""
        if self._quick is not None:
            self._quick.begin_again()
        record = self._record
        if self.recording:
            record.entered_ns = self._now()
        timers = record.timers
        if (
            timers is not None
            and record.forward is not None  # its forward was seen, which in such loops of SGLang's none is
            and not timers.recorded & END
            and (record.timed or self._wants_end_before(record.step + 1))
        ):
            timers.record_end(record.forward)
        if record.marks is not None and not record.traced:
            self._tracer.keep_if_coarse(record)
        self._end(record)

    def _end(self, record: StepRecord) -> None:
        """The step is enqueued whole, with its barrier: what is only counted is over; the rest waits for its times."""
        if not self.timing:
            for finished in self.observers.step_finished:
                finished(record)
            return
        if self.recording and self.ring is not None:
            self.ring.keep(record)
        if not record.timed:
            self._reader.finish(record)
            return
        if record.fence is FenceKind.COARSE:
            record.wants_next = self._full_next = True
            self._due = record.step + 1
        self.pending = self._reader.add(record)
