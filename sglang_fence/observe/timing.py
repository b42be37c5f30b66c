"""Device times of one step, by pooled timing events; read when they are done, never waited for.

Names as in the design: G, the forward's start on its stream; F, the forward stream at the barrier call; R, the moment
of the bound record; A, the schedule stream before the wait; C, where the reads of a coarse step would have ended.

The marker is not timed: the next launch re-arms it before a late reader looks. Its moment is copied by an observer
stream that waits for it and records an event of its own. L, the schedule stream after the wait, isn't recorded either:
the wait is over when both A and R are there, so it is the later of the two.

Slack and wait are differences of two of these, and are read as such (:data:`QUICK`); whatever is compared with the
host's moments, or with another step's, is read against the clock's base.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from sglang_fence.observe.moments import END, METADATA, RELEASED, START, WAIT

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglang_fence.contract import FallbackReason, FenceKind, SharedReadEnds
    from sglang_fence.observe.moments import FenceMoments


class TimedEvent(Protocol):
    """An event made with timing."""

    def record(self, stream: Any, /) -> None:  # noqa: ANN401 - whatever stream the device makes
        """Bind to the work enqueued on the stream so far."""

    def elapsed_us(self, end_event: Any, /) -> float | None:  # noqa: ANN401 - an event of the same kind
        """µs from this event's newest record to ``end_event``'s; None while one of them isn't done. Never blocks."""


class ObserverStream(Protocol):
    """A stream that only observes."""

    def wait_event(self, event: Any, /) -> None:  # noqa: ANN401 - whatever event the device makes
        """Hold later work behind the newest record of ``event``."""


class TimingDevice(Protocol):
    """The part of a device module that times."""

    def timed_event(self) -> TimedEvent:
        """Make a timing event."""

    def as_event(self, timed: Any, /) -> Any:  # noqa: ANN401 - a timing event; an event of the device, or None
        """Return ``timed`` as an event that the runtime may record and wait for; None where it can't serve both."""

    @property
    def driver_library(self) -> str | None:
        """The driver that the compiled part may call with the handles of events and streams; None: it can't."""

    def fence_moments(self, end: Any, released: Any, wait: Any, /) -> FenceMoments:  # noqa: ANN401 - its own events
        """Return what takes F, R and A with these three events, in as few calls as it can."""

    def host_ns(self) -> int:
        """The host's clock in nanoseconds: ``perf_counter_ns``, or virtual time."""

    def is_capturing(self) -> bool:
        """Whether a stream captures, so that no event may be asked."""


class VerdictLike(Protocol):
    """What the probe reads of a barrier's verdict."""

    @property
    def kind(self) -> FenceKind:
        """How the schedule stream was held back."""

    @property
    def reason(self) -> FallbackReason | None:
        """Why it was coarse."""

    @property
    def published(self) -> tuple[SharedReadEnds, int] | None:
        """The resolved end that the owner published for this step, and the publication's number."""


QUICK = END | RELEASED | WAIT
"""What slack and wait of a fine step are read from."""


class StepTimers:
    """The events of one step record, which of them are recorded, and what was read of them (µs, device timeline)."""

    __slots__ = (
        "end",
        "end_event",
        "end_us",
        "metadata",
        "metadata_us",
        "moments",
        "recorded",
        "released",
        "released_us",
        "start",
        "start_us",
        "wait",
        "wait_us",
    )

    def __init__(self, device: TimingDevice) -> None:
        self.start = device.timed_event()
        """G."""
        self.end = device.timed_event()
        """F."""
        self.end_event: Any = device.as_event(self.end)
        """F as an event that the runtime may record and wait for; None where it can't serve both."""
        self.released = device.timed_event()
        """R, or C where the fence is coarse: copied."""
        self.wait = device.timed_event()
        """A."""
        self.metadata = device.timed_event()
        """C, where nothing is published: the end of the metadata outside the graph."""
        self.moments: FenceMoments = device.fence_moments(self.end, self.released, self.wait)
        """F, R and A together."""
        self.recorded = 0
        """Which are recorded: START, END, RELEASED, WAIT, METADATA."""
        self.start_us: float | None = None
        self.end_us: float | None = None
        self.released_us: float | None = None
        self.wait_us: float | None = None
        self.metadata_us: float | None = None

    def reset(self) -> None:
        """Forget what was recorded, and read."""
        self.recorded = 0
        self.start_us = self.end_us = self.released_us = self.wait_us = self.metadata_us = None

    def record_start(self, forward: object) -> None:
        """Record G."""
        self.start.record(forward)
        self.recorded |= START

    def record_end(self, forward: object) -> None:
        """Record F."""
        self.end.record(forward)
        self.recorded |= END

    def record_metadata(self, forward: object) -> None:
        """Record C on the forward stream itself."""
        self.metadata.record(forward)
        self.recorded |= METADATA

    def record_wait(self, schedule: object) -> None:
        """Record A."""
        self.wait.record(schedule)
        self.recorded |= WAIT

    def read(self, read: Callable[[TimedEvent], float | None]) -> bool:
        """Read what is recorded and not read; return whether all of it is there. F first: it comes last."""
        recorded = self.recorded
        if recorded & END and self.end_us is None:
            self.end_us = read(self.end)
            if self.end_us is None:
                return False
        if recorded & WAIT and self.wait_us is None:
            self.wait_us = read(self.wait)
        if recorded & RELEASED and self.released_us is None:
            self.released_us = read(self.released)
        if recorded & METADATA and self.metadata_us is None:
            self.metadata_us = read(self.metadata)
        return (
            self.read_start(read)
            and (self.wait_us is not None or not recorded & WAIT)
            and (self.released_us is not None or not recorded & RELEASED)
        )

    def read_start(self, read: Callable[[TimedEvent], float | None]) -> bool:
        """Read G alone, which the step before may want; return whether it is there."""
        if self.recorded & START and self.start_us is None:
            self.start_us = read(self.start)
        return self.start_us is not None or not self.recorded & START

    def read_end(self, read: Callable[[TimedEvent], float | None]) -> float | None:
        """Read F alone, which the step after may want."""
        if self.recorded & END and self.end_us is None:
            self.end_us = read(self.end)
        return self.end_us
