"""``Holding``: the records of steps, free or in flight, and when one may be used again.

A record is used again only once the steps before and behind it on its forward stream are finished, since a gap lies
between two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.observe.record import StepRecord
from sglang_fence.observe.timing import StepTimers

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable

    from sglang_fence.observe.device_times import DeviceTimes
    from sglang_fence.observe.ledger import Health
    from sglang_fence.observe.observer import Observers
    from sglang_fence.observe.tracing import Tracer


class Holding:
    """The part of a reader that keeps records."""

    times: DeviceTimes | None
    pending: deque[StepRecord]
    _free: deque[StepRecord]
    _health: Health
    _last: dict[object, StepRecord]
    """The newest step of each forward stream."""
    _observers: Observers
    _tracer: Tracer

    def _made(self) -> StepRecord:
        """Make a record, with events of its own where device times are taken."""
        return StepRecord(None if self.times is None else StepTimers(self.times.device))

    def take(self) -> StepRecord:
        """Return a record for a new step; the oldest step in flight is given up where none is free.

        It is the one that was used last: its events, and what the driver keeps of them, are still in the caches. Where
        there are several streams, it is the one that was used longest ago: a step may be read there before the runtime
        has asked for the end that it was lent (:meth:`~sglang_fence.observe.probe.StepProbe.end_event`).
        """
        free, times = self._free, self.times
        while not free:
            if not self.pending:  # forwards that raised took their records with them, and those linked to these
                return self._made()
            self._give_up(self.pending.popleft(), "in_flight")
        return free.popleft() if times is not None and times.observer_of else free.pop()

    def follow(self, record: StepRecord, forward: object, since: int) -> StepRecord | None:
        """Put a step on its forward stream; return the one before it there, if a gap between the two is asked for.

        Args:
            record: the step.
            forward: its stream.
            since: the first step from which on none was only counted.
        """
        last = self._last
        record.forward = forward
        previous = last.get(forward)
        last[forward] = record
        if previous is None:
            return None
        if previous.step >= since and (record.wants_start or previous.wants_next):
            record.previous = previous
            previous.next = record
            return previous
        # No gap is asked for; or what was only counted since may have run in between, and nothing is known of it.
        if previous.finished:
            self._release(previous)
        return None

    def _give_up(self, record: StepRecord, cause: str) -> None:
        if record.timed:
            self._health.unresolved[cause] += 1
        self.finish(record)

    def finish(self, record: StepRecord) -> None:
        """Tell the observers that a step is over, and keep its record until no gap begins with it."""
        observers = self._observers
        told: Callable[[StepRecord], None] | None = None
        try:
            for told in observers.finishing:
                told(record)
        except Exception as error:  # noqa: BLE001 - an observer must never end a step; it is counted and logged
            observers.go_on_finishing(told, record, error)
        record.finished = True
        if record.marks is not None:
            self._tracer.give_back(record)
        previous, following = record.previous, record.next
        if previous is None and following is None:
            if self._last.get(record.forward) is not record:
                self._free.append(record)
            return
        if previous is not None and previous.finished:
            record.previous = previous.next = None
            self._release(previous)
        if following is not None and following.finished:
            record.next = following.previous = None
            self._release(following)
        self._release(record)

    def _release(self, record: StepRecord) -> None:
        """Take a record back once it is over, no step that isn't looks at it, and none follows it on its stream."""
        if record.finished and record.previous is record.next is None and self._last.get(record.forward) is not record:
            self._free.append(record)

    def _forget(self) -> None:
        """Nothing follows the newest steps of any stream."""
        newest = list(self._last.values())
        self._last.clear()
        for record in newest:
            self._release(record)
