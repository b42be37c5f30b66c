"""F, R and A: what is recorded around each timed fence, and what slack and wait are read from.

Three records and a wait in a row are most of what timing a step costs, so a device may do them in one call:
:class:`FenceMoments`. :class:`PlainMoments` does them one by one, on any device. Which of the two a probe has makes no
difference to what it reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from sglang_fence.observe.timing import TimedEvent

START, END, RELEASED, WAIT, METADATA = 1, 2, 4, 8, 16
"""Bits of :attr:`~sglang_fence.observe.timing.StepTimers.recorded`: G, F, R, A, C."""


class FenceMoments(Protocol):
    """Takes the three of one step, by the events that it was made with, and reads them."""

    def take(self, forward: Any, observer: Any, event: Any, schedule: Any, /) -> int:  # noqa: ANN401 - the device's
        """Record F on ``forward``, unless it is None; R on ``observer``, which waits for ``event``; and maybe A.

        Returns what was recorded, by the bits above. A may be left for later, when the host gets to the wait.
        """

    def read(self) -> tuple[float, float] | None:
        """Return the µs from R to F and from A to R; None while one of the three isn't reached. Never blocks."""


class OneByOne:
    """The part of a device that takes moments with :class:`PlainMoments`."""

    driver_library: str | None = None
    """No driver is called past the device."""

    def fence_moments(self, end: Any, released: Any, wait: Any, /) -> PlainMoments:  # noqa: ANN401 - the device's events
        """Return what takes F, R and A with these events, one call after the other."""
        return PlainMoments(end, released, wait)


class PlainMoments:
    """One call after the other."""

    __slots__ = ("_end", "_released", "_wait")

    def __init__(self, end: TimedEvent, released: TimedEvent, wait: TimedEvent) -> None:
        self._end = end
        self._released = released
        self._wait = wait

    def take(self, forward: Any, observer: Any, event: Any, schedule: Any, /) -> int:  # noqa: ANN401, ARG002 - see FenceMoments
        """All but A."""
        recorded = RELEASED
        if forward is not None:
            self._end.record(forward)
            recorded |= END
        observer.wait_event(event)
        self._released.record(observer)
        return recorded

    def read(self) -> tuple[float, float] | None:
        """See :class:`FenceMoments`."""
        slack = self._released.elapsed_us(self._end)
        if slack is None:
            return None
        wait = self._wait.elapsed_us(self._released)
        return None if wait is None else (slack, wait)
