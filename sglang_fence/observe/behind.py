"""``Behind``: the start of a forward behind a coarse step that is timed, where the step itself is only counted.

What a coarse fence lost is seen at the start of the next forward. To look at all of that step for this alone would take
twenty times as long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.observe.fencing import Fencing

if TYPE_CHECKING:
    from sglang_fence.observe.record import StepRecord


class Behind(Fencing):
    """The part of a probe that takes such a start for whoever counts steps without it."""

    @property
    def wants_start_behind(self) -> bool:
        """Whether the step that went the general way last asks for the next one's start."""
        return self._record.wants_next

    def due_behind(self, *, beyond_slack: bool) -> tuple[int, int]:
        """As :attr:`due` or :attr:`due_beyond_slack`, if :meth:`start_behind` takes the start of the next step."""
        step, every = self._record.step, self.sampling.timing_every
        if beyond_slack and every:
            return self._sampler.next_start(step), every
        return self._sampler.next_due(step), 0

    def start_behind(self, step: int, forward: object) -> None:
        """The first work of ``step``, which is only counted, is enqueued next on ``forward``.

        It comes right behind the step that went the general way last.
        """
        self._full_next = False
        reader = self._reader
        record: StepRecord = reader.take()
        record.begin()
        record.step = step
        timers = record.timers
        try:
            if reader.follow(record, forward, self._since) is not None and timers is not None:
                record.is_written = True
                record.starts_alone = self._sampler.asks(step) > 0
                record.host_start_ns = self._now()
                timers.record_start(forward)
        finally:
            record.finished = True  # nobody is told of it; one that wasn't would keep the record before it from use
