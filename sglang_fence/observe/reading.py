"""``Reader``: the steps in flight. Reads device times that are there, settles durations, tells the observers.

Timed steps of one forward stream finish in order.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

from sglang_fence.contract import FenceKind
from sglang_fence.observe.assembly import assemble
from sglang_fence.observe.durations import settle
from sglang_fence.observe.gathering import follow_gap, gather
from sglang_fence.observe.holding import Holding
from sglang_fence.observe.moments import METADATA
from sglang_fence.observe.timing import QUICK

if TYPE_CHECKING:
    from sglang_fence.observe.device_times import DeviceTimes
    from sglang_fence.observe.flight.progress import Progress
    from sglang_fence.observe.ledger import Health
    from sglang_fence.observe.marks import Mark
    from sglang_fence.observe.observer import Observers
    from sglang_fence.observe.record import StepRecord
    from sglang_fence.observe.tracing import Tracer

logger = logging.getLogger(__name__)

BATCH = 8
"""Steps that are read in one go: code that runs each time from a cold cache costs three times as much."""

DRAIN_LIMIT = 12
"""What a drain reads at the most: about 40 µs. A step with slack and wait alone counts as one, a traced one ends it."""

FULL = 3
"""What any other step counts as: its moments are put on the timeline."""


class Reader(Holding):
    """Holds ``count`` records, free or in flight.

    Args:
        observers: hear of finished steps.
        health: counts what isn't resolved.
        times: None where no device times are taken.
        tracer: takes the ranges of finished steps back.
        count: of records.
        progress: where the newest step whose times were read is noted.
    """

    def __init__(
        self,
        observers: Observers,
        health: Health,
        times: DeviceTimes | None,
        tracer: Tracer,
        count: int,
        progress: Progress,
    ) -> None:
        self._observers, self._health, self._progress = observers, health, progress
        self.times = times
        self._tracer = tracer
        self._last: dict[object, StepRecord] = {}
        self._free = deque(self._made() for _ in range(count))
        self.pending: deque[StepRecord] = deque()
        """Steps that are enqueued whole, the oldest first."""
        self._batch = BATCH if times is not None and not times.clock.virtual else 1
        self._is_idle = False
        """Whether no launch follows soon, so that nothing waits for the next forward's start."""
        self._failures = 0

    @property
    def ready(self) -> bool:
        """Whether a batch of steps waits to be read, beside the newest."""
        return len(self.pending) > self._batch

    def add(self, record: StepRecord) -> bool:
        """The step is enqueued whole. Returns :attr:`ready`."""
        pending = self.pending
        pending.append(record)
        return len(pending) > self._batch

    def drain(self, limit: int) -> int:
        """Finish what is done, up to ``limit``, one traced step at the most; return how many.

        The newest step is left alone: its device work has only just been enqueued.
        """
        times = self.times
        if times is not None and times.device.is_capturing():
            return 0
        self.renew_clock()
        return self._drain_all(limit) if self._several_streams else self._drain_one_stream(limit)

    def renew_clock(self) -> None:
        """See :meth:`~sglang_fence.observe.clock.DeviceClock.renew`."""
        if self.times is None:
            return
        clock = self.times.clock
        try:
            if clock.renew():
                self._health.clock_error_ns = clock.error_ns
        except Exception as error:  # noqa: BLE001 - reading must never end a step
            self._failed(error)

    def idle(self) -> None:
        """No launch follows soon."""
        self._is_idle = True
        while self.pending and self.drain(len(self.pending)):
            pass
        self._forget()
        self._is_idle = False

    def flush(self, limit: int) -> None:
        """Finish what is left. The caller has synchronised the device, so that all of it is there."""
        self._is_idle = True
        while self.pending and self.drain(limit):
            pass
        while self.pending:
            self._give_up(self.pending.popleft(), "end")
        self._forget()
        self._is_idle = False

    @property
    def _several_streams(self) -> bool:
        return self.times is not None and bool(self.times.observer_of)

    def _drain_one_stream(self, limit: int) -> int:
        pending, count, left = self.pending, 0, 0 if self._is_idle else 1
        while len(pending) > left and limit > 0:
            record = pending[0]
            if not self._finish_or_fail(record):
                break
            pending.popleft()
            count += 1
            limit -= FULL if record.is_written else 1
            if record.traced:
                break
        return count

    def _drain_all(self, limit: int) -> int:
        busy: set[object] = set()
        pending, count, place = self.pending, 0, 0
        while place < len(pending) and limit > 0:
            record = pending[place]
            if record.forward in busy or not self._finish_or_fail(record):
                busy.add(record.forward)
                place += 1
                continue
            del pending[place]
            count += 1
            limit -= FULL if record.is_written else 1
            if record.traced:
                break
        return count

    def _finish_or_fail(self, record: StepRecord) -> bool:
        """As :meth:`_finish_if_done`; a step that can't be read is over, too, without its device times."""
        timers, times = record.timers, self.times
        try:
            if (
                timers is None
                or times is None
                or record.is_written
                or record.fence is not FenceKind.FINE
                or timers.recorded & ~METADATA != QUICK
            ):
                return self._finish_if_done(record)
            # A fine step that has a slack and a wait, and no gap: both are differences of its own events.
            read = timers.moments.read()
            if read is None:
                return False
            slack, wait = read
        except Exception as error:  # noqa: BLE001 - reading must never end a step
            self._failed(error)
            self._give_up(record, "failed")
            return True
        late = times.offsets.marker_copy_us if wait > 0.0 else times.offsets.marker_copy_busy_us
        slack += late
        if slack < 0.0:
            record.clamped, record.is_written, slack = ("slack",), True, 0.0
        record.slack_us = slack
        self._progress.timed = record.step
        record.wait_us = max(0.0, wait - late)
        self.finish(record)
        return True

    def _finish_if_done(self, record: StepRecord) -> bool:
        """Finish a step if all its device times are there. One without stays behind what is older on its stream."""
        times, timers = self.times, record.timers
        if times is None or timers is None or not record.timed:
            self.finish(record)
            return True
        record.is_written = True
        read = times.clock.read
        if not timers.read(read) or (record.wants_next and not self._next_has_started(record, times)):
            return False
        marks: list[Mark] = []
        if record.marks is not None:
            found = record.marks.read(read)
            if found is None:
                return False
            marks = found
        self._progress.timed = record.step
        moments = gather(record, timers, times)
        settle(record, moments, natural_gap=times.natural_gap_us, latency=times.offsets.launch_us)
        follow_gap(record, moments, times)
        trace = assemble(record, moments, marks, times.clock) if record.traced else None
        self.finish(record)
        if trace is not None:
            for hook in self._observers.step_traced:
                hook(trace)
        return True

    def _next_has_started(self, record: StepRecord, times: DeviceTimes) -> bool:
        """Whether the start of the next forward is read, or none is to come."""
        following = record.next
        if following is None:
            return self._is_idle or self._last.get(record.forward) is not record
        return following.timers is None or following.timers.read_start(times.clock.read)

    def _failed(self, error: Exception) -> None:
        """Count it."""
        self._failures += 1
        self._health.errors["drain"] = self._health.errors.get("drain", 0) + 1
        if self._failures == 1:
            logger.error("device times can't be read; serving goes on", exc_info=error)
