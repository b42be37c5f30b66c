"""Device times of one step, by pooled timing events; read with ``query``, never waited for.

Names as in the design: F, the forward stream at the barrier call; R, the moment of the bound record; A and L, the
schedule stream before and after the wait.

The marker is not timed: the next launch re-arms it before a late reader looks. Its moment is copied by an observer
stream that waits for it and records an event of its own.
"""

from __future__ import annotations

from typing import Any, Protocol


class TimedEvent(Protocol):
    """An event made with timing."""

    def record(self, stream: object | None = None, /) -> None:
        """Bind to the work enqueued on the stream so far."""

    def query(self) -> bool:
        """Whether it is done."""

    def elapsed_time(self, end_event: object, /) -> float:
        """Milliseconds to ``end_event``."""


class ObserverStream(Protocol):
    """A stream that only observes."""

    def wait_event(self, event: Any, /) -> None:  # noqa: ANN401 - whatever event the device makes
        """Hold later work behind the newest record of ``event``."""


class TimingDevice(Protocol):
    """The part of a device module that makes timers."""

    def Event(self, *, enable_timing: bool = False) -> object:  # noqa: N802 - torch.cuda's name
        """Make an event."""


class StepTimers:
    """The four events of one step record."""

    __slots__ = ("fine", "forward", "forward_end", "released", "wait_end", "wait_start")

    def __init__(self, device: TimingDevice) -> None:
        self.forward_end = _event(device)
        self.released = _event(device)
        self.wait_start = _event(device)
        self.wait_end = _event(device)
        self.fine = False
        self.forward: object = None
        """The forward stream that the step ran on."""

    def reads_end(self, forward: object, observer: ObserverStream, event: object | None) -> None:
        """Record F and R. ``event`` is what the schedule stream is going to wait for; None: the forward's end."""
        self.forward = forward
        self.forward_end.record(forward)
        self.fine = event is not None
        if event is not None:
            observer.wait_event(event)
            self.released.record(observer)

    def before_wait(self, schedule: object) -> None:
        """Record A."""
        self.wait_start.record(schedule)

    def after_wait(self, schedule: object) -> None:
        """Record L."""
        self.wait_end.record(schedule)

    def ready(self) -> bool:
        """Whether all that was recorded is done."""
        return self.wait_end.query() and self.forward_end.query() and (not self.fine or self.released.query())

    def slack_us(self) -> float:
        """max(0, F − R): how much sooner than behind the coarse fence the schedule stream was let go."""
        return max(0.0, _us(self.released, self.forward_end)) if self.fine else 0.0

    def wait_us(self) -> float:
        """max(0, L − A): the stall that was left."""
        return max(0.0, _us(self.wait_start, self.wait_end))


def _us(start: TimedEvent, end: TimedEvent) -> float:
    # elapsed_time is a float of ms; a nanosecond is far below what either device resolves.
    return round(start.elapsed_time(end) * 1e3, 3)


def _event(device: TimingDevice) -> TimedEvent:
    event: TimedEvent = device.Event(enable_timing=True)  # type: ignore[assignment]
    return event
