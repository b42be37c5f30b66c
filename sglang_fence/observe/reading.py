"""``Reader``: the steps in flight. Reads device times that are there, settles durations, tells the observers.

Steps of one forward stream finish in order. A record is used again only once its successor on that stream is finished,
since a gap lies between the two.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

from sglang_fence.contract import FenceKind
from sglang_fence.observe.assembly import assemble
from sglang_fence.observe.durations import Moments, settle
from sglang_fence.observe.record import StepRecord
from sglang_fence.observe.timing import StepTimers

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglang_fence.observe.device_times import DeviceTimes
    from sglang_fence.observe.ledger import Health
    from sglang_fence.observe.marks import Mark
    from sglang_fence.observe.observer import Observers

logger = logging.getLogger(__name__)


class Reader:
    """Holds ``count`` records, free or in flight.

    Args:
        observers: hear of finished steps.
        health: counts what isn't resolved.
        times: None where no device times are taken.
        give_marks_back: takes the ranges of a finished step.
        count: of records.
    """

    def __init__(
        self,
        observers: Observers,
        health: Health,
        times: DeviceTimes | None,
        give_marks_back: Callable[[StepRecord], None],
        count: int,
    ) -> None:
        self._observers = observers
        self._health = health
        self.times = times
        self._give_marks_back = give_marks_back
        self._last: dict[object, StepRecord] = {}
        self._free = deque(StepRecord(None if times is None else StepTimers(times.device)) for _ in range(count))
        self._pending: deque[StepRecord] = deque()
        self.idle = False
        """Whether no launch follows soon, so that nothing waits for the next forward's start."""

    def take(self) -> StepRecord:
        """Return a record for a new step; the oldest step in flight is given up where none is free."""
        while not self._free:
            self._give_up(self._pending.popleft(), "in_flight")
        return self._free.popleft()

    def follow(self, record: StepRecord, forward: object) -> StepRecord | None:
        """Put a step on its forward stream; return the one before it there."""
        last = self._last
        record.forward = forward
        previous = last.get(forward)
        last[forward] = record
        if previous is not None:
            record.previous = previous
            previous.next = record
        return previous

    def forget(self) -> None:
        """Nothing follows the newest steps of any stream."""
        for record in self._last.values():
            if record.finished:
                self._free.append(record)
        self._last.clear()

    def add(self, record: StepRecord) -> None:
        """The step is enqueued whole."""
        self._pending.append(record)

    def drain(self, limit: int) -> int:
        """Finish what is done, ``limit`` steps at the most, one traced one at the most; return how many."""
        if not self._pending:
            return 0
        times = self.times
        if times is not None and times.device.is_capturing():
            return 0
        unfinished: list[StepRecord] = []
        busy: set[object] = set()
        count = 0
        while self._pending and count < limit:
            record = self._pending.popleft()
            if record.forward in busy or not self._finish_if_done(record):
                busy.add(record.forward)
                unfinished.append(record)
                if len(busy) == 1 and (times is None or not times.observer_of):
                    break  # one forward stream: the younger ones aren't done either
                continue
            count += 1
            if record.traced:
                break
        self._pending.extendleft(reversed(unfinished))
        if times is not None:
            times.clock.renew()
        return count

    def flush(self, limit: int) -> None:
        """Finish what is left. The caller has synchronised the device, so that all of it is there."""
        self.idle = True
        while self.drain(limit):
            pass
        while self._pending:
            self._give_up(self._pending.popleft(), "end")
        self.forget()
        self.idle = False

    def _finish_if_done(self, record: StepRecord) -> bool:
        """Finish a step if all its device times are there.

        One without times stays behind whatever is older on its stream.
        """
        times = self.times
        if times is None or record.timers is None or not record.timed:
            self._finish(record)
            return True
        read = times.clock.read
        timers, following = record.timers, record.next
        if not timers.read(read):
            return False
        wants_next = record.fence is FenceKind.COARSE
        if wants_next and following is None and not self.idle:
            return False
        ahead = following.timers if wants_next and following is not None else None
        if ahead is not None and not ahead.read_start(read):
            return False
        marks: list[Mark] = []
        if record.traced and record.marks is not None:
            found = record.marks.read(read)
            if found is None:
                return False
            marks = found
        moments = self._moments(record, timers, times)
        settle(record, moments, natural_gap=times.natural_gap_us, latency=times.offsets.launch_us)
        self._follow_gap(record, moments, times)
        trace = assemble(record, moments, marks, times.clock) if record.traced else None
        self._finish(record)
        if trace is not None:
            for hook in self._observers.step_traced:
                hook(trace)
        return True

    @staticmethod
    def _moments(record: StepRecord, timers: StepTimers, times: DeviceTimes) -> Moments:
        clock, late = times.clock, times.offsets.marker_copy_us
        previous, following = record.previous, record.next
        moments = Moments(
            start=timers.start_us,
            end=timers.end_us,
            released=None if timers.released_us is None else timers.released_us - late,
            metadata=timers.metadata_us,
            wait=timers.wait_us,
        )
        if record.host_start_ns:
            moments.host_start = clock.on_timeline(record.host_start_ns)
        if previous is not None and previous.timers is not None:
            moments.previous_end = previous.timers.read_end(clock.read)
            moments.fenced = previous.fence in {FenceKind.FINE, FenceKind.COARSE}
        if following is not None and following.timers is not None and following.host_start_ns:
            moments.next_start = following.timers.start_us
            moments.next_host_start = clock.on_timeline(following.host_start_ns)
        return moments

    @staticmethod
    def _follow_gap(record: StepRecord, moments: Moments, times: DeviceTimes) -> None:
        """A gap is natural where the host launched before the forward stream ran empty, behind a fine fence."""
        previous = record.previous
        if (
            record.gap_us is not None
            and previous is not None
            and previous.fence is FenceKind.FINE
            and moments.host_start is not None
            and moments.previous_end is not None
            and moments.host_start < moments.previous_end
        ):
            times.observe_gap(record.gap_us)

    def _give_up(self, record: StepRecord, cause: str) -> None:
        if record.timed:
            self._health.unresolved[cause] += 1
        self._finish(record)

    def _finish(self, record: StepRecord) -> None:
        for hook in self._observers.step_finished:
            hook(record)
        self._give_marks_back(record)
        record.finished = True
        previous = record.previous
        record.previous = None
        if previous is not None:
            previous.next = None
            self._free.append(previous)
        if record.next is None and self._last.get(record.forward) is not record:
            self._free.append(record)  # no step comes after it on its stream
