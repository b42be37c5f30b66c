"""From what the hooks see to what the probe is told: one step at a time, begun, launched, and closed exactly once.

A step is closed by the barrier. One that meets none (its loop has no barrier) is closed as ``absent``: at the end of
its launch where the loop is known, at the beginning of the next one where it isn't.

The probe's own attributes say what has to be told (see :class:`~sglang_fence.observe.probe.StepProbe`): nearly every
step is only counted, and costs three calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.contract import FenceKind
from sglang_fence.observe.observer import Observers
from sglang_fence.observe.probe import StepProbe
from sglang_fence.observe.quick_times import count_unread
from sglang_fence.sglang_plugin.repeating import Repeating

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from sglang_fence.contract import FallbackReason, SharedReadEnds
    from sglang_fence.observe.quick_times import QuickTimes
    from sglang_fence.sglang_plugin.streams import CudaStreams


class Verdict:
    """How a barrier came out. There is one, told anew for each step: whoever hears of it reads it at once."""

    __slots__ = ("event", "kind", "published", "reason")

    def __init__(self) -> None:
        self.kind = FenceKind.ABSENT
        self.reason: FallbackReason | None = None
        self.published: tuple[SharedReadEnds, int] | None = None
        """The resolved end that the owner published for this step, and the step's number; None: nothing."""
        self.event: object | None = None
        """What was published: what a fine fence waits for, and where reads behind a forced coarse one would end."""


class Steps:
    """The step in progress.

    Args:
        current: which it is, and whether it repeats the one before. None: one that accounts for nothing.
    """

    def __init__(self, current: Repeating | None = None) -> None:
        self.current = Repeating({}, 0) if current is None else current
        self.probe = StepProbe(Observers())
        """Nobody hears of what is told before a loop runs, and after the last one."""
        self.marks = False
        """Whether ranges may be heard, now or after a change of the sampling: where not, nobody need begin one."""
        self.streams: CudaStreams | None = None
        """SGLang's streams, dressed; None on a device without timing events, where any stream does."""
        self.repeated_times: QuickTimes | None = None
        """Keeps the events that repeated steps are timed with; None: they aren't, or by the general hooks."""
        self.when_read: Callable[[], None] | None = None
        """Called when device times were read."""
        self.begin_again: Callable[[], object] = object
        """As :attr:`~sglang_fence.sglang_plugin.repeating.Repeating.demote`, for general hooks: what these take is
        measured, with all that they call."""

    def end(self) -> None:
        """No step follows: close the open one, and read what is ready of those that repeated."""
        self.close_absent()
        current = self.current
        current.arm(None)
        current.drain(current.pending)
        count_unread(current, self.probe.health.unresolved, "end")

    def observe_no_more(self) -> None:
        """Nobody hears of what comes."""
        self.current.arm(None)
        self.probe = StepProbe(Observers())
        self.marks = False
        self.when_read = None

    def forward_started(self, forward: object) -> None:
        """Its first work is enqueued on ``forward`` next. Asked for by the probe's ``timing``."""
        self.probe.forward_started(self._dressed(forward))

    def start_behind(self, forward: object) -> None:
        """As :meth:`forward_started`, of a step that repeats."""
        self.probe.start_behind(self.current.number, self._dressed(forward))

    def forward_enqueued(self, forward: object) -> None:
        """Its first work is on ``forward`` already: its start can't be taken."""
        self.probe.forward_enqueued(self._dressed(forward))

    def _dressed(self, forward: object) -> object:
        return forward if self.streams is None else self.streams.dressed(forward)

    def close_absent(self) -> None:
        """Close an open step that met no barrier."""
        current = self.current
        if current.open:
            if current.repeats:
                self.begin_again()
            current.open = False
            self.probe.no_barrier()
            self.read()

    def reads_end(self, verdict: Verdict, forward: object) -> bool:
        """Its fence is decided. Asked for by the probe's ``timing``. Returns whether its ``before_wait`` is due."""
        probe, streams, event = self.probe, self.streams, verdict.event
        if streams is not None:
            forward = streams.dressed(forward)
            event = None if event is None else streams.event(event)
        return probe.reads_end(verdict, event, forward)

    def idle(self) -> None:
        """Nothing will be launched soon: read all that is ready."""
        self.close_absent()
        current = self.current
        current.tell_inputs = None
        self.probe.progress.in_hand = current.number  # it idles once all results are processed, and not before
        self.probe.idle()
        while current.pending and current.drain(current.pending):
            pass
        count_unread(current, self.probe.health.unresolved, None)
        if self.when_read is not None:
            self.when_read()

    def range(self, name: str) -> AbstractContextManager[None] | None:
        """Begin a range of the open step, to be left; None where nobody would hear of it."""
        probe = self.probe
        if not (probe.traced or probe.observers.range_started):
            return None
        marked = probe.range(name)
        marked.__enter__()
        return marked

    def read(self) -> None:
        """Read what is ready, bounded."""
        self.probe.drain()
        if self.when_read is not None:
            self.when_read()


def leave(marked: AbstractContextManager[None] | None) -> None:
    """End a range, if one was begun."""
    if marked is not None:
        marked.__exit__(None, None, None)
