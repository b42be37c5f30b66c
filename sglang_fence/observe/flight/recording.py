"""``Recording``: the part of a probe that notes what a step does at its fence before it does it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglang_fence.observe.flight.progress import Progress
    from sglang_fence.observe.flight.ring import FlightRing
    from sglang_fence.observe.record import StepRecord
    from sglang_fence.observe.timing import VerdictLike


class Recording:
    """Host moments of every step, and what its wait is bound to, before the wait is enqueued."""

    ring: FlightRing | None
    progress: Progress
    recording: bool
    """Whether there is a flight recorder: :meth:`at_barrier` is called."""
    _now: Callable[[], int]
    _record: StepRecord

    @property
    def general_record(self) -> StepRecord:
        """The record of the step that began last in the general way; another one's as soon as the next does."""
        return self._record

    @property
    def newest(self) -> StepRecord:
        """The record of the step that began last; another one's as soon as the next begins.

        Where that is a repeated one the record is made for whoever asks, which takes long.
        """
        record, repeated = self._record, None if self.ring is None else self.ring.repeated
        row = None if repeated is None else repeated.row
        return record if row is None or row.step < record.step else row

    def now_ns(self) -> int:
        """The clock of the records' host times. From any thread."""
        return self._now()

    def launched(self) -> None:
        """The step's forward is enqueued whole. Asked for by ``recording``, where ``timing`` is on as well.

        A step that is only counted goes without: the barrier comes right behind it.
        """
        self._record.launch_ns = self._now()

    def at_barrier(self, verdict: VerdictLike, event: object | None) -> None:
        """The fence is decided, and the wait is enqueued next. Asked for by ``recording``.

        Args:
            verdict: how the step is fenced.
            event: what a fine fence waits for; None: there is no such event. It isn't kept, only told apart.
        """
        record = self._record
        record.fence = verdict.kind
        record.reason = verdict.reason
        published = verdict.published
        if published is not None:
            record.resolved, record.bound_record = published
        if event is not None:
            record.event_id = id(event)
        record.entered_ns = self._now()
