"""Streams and events of the simulated device, with CUDA's binding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.errors import CaptureError

if TYPE_CHECKING:
    from sglang_fence.device import protocol
    from sglang_fence.device.simulated.core import Core
    from sglang_fence.device.simulated.graphs import Mark
    from sglang_fence.device.simulated.timeline import Lane, Record

_PS_PER_MS = 1_000_000_000


class SimulatedEvent:
    """A point on a stream. A wait binds to the newest record issued before it and keeps that binding."""

    __slots__ = ("__weakref__", "_core", "bound", "external", "mark", "timed")

    def __init__(self, core: Core, *, timed: bool, external: bool) -> None:
        self._core = core
        self.timed = timed
        self.external = external
        self.bound: Record | None = None
        """The newest record, outside of captures."""
        self.mark: Mark | None = None
        """Set by a record inside a capture: until it is recorded again, the event means that place alone."""

    def record(self, stream: protocol.Stream | None = None) -> None:
        """Bind to all work enqueued on ``stream`` (the current one by default) so far.

        In a capture, an external event becomes a node and binds at each replay; any other names a place from which
        an edge inside the graph may start.
        """
        core = self._core
        core.begin()
        target = core.current if stream is None else core.own_stream(stream)
        capture = core.capture
        if capture is None or not capture.owns(target):
            self.mark = None
            self.bound = core.timeline.record(target.lane)
        elif self.external:
            capture.record(target, self)
        else:
            self.mark = capture.mark(target)

    def query(self) -> bool:
        """Whether the work of the newest record is done by the host's time; true where nothing was recorded.

        No virtual time passes, so asking again and again gets the same answer. True orders what the host does next
        after that work, as a synchronisation would; but not for an event made with timing: those belong to whoever
        observes, and watching a run must not make it look better ordered than it is.

        Raises:
            CaptureError: a capture is under way, or the newest record was made in one.
        """
        core = self._core
        core.begin()
        core.refuse_capture("event.query()")
        self._refuse_mark()
        if self.bound is None:
            return True
        if self.bound.time > core.timeline.now:
            return False
        if not self.timed:
            core.synchronize(self.bound, ("event", None))
        return True

    def synchronize(self) -> None:
        """Block the host until the work of the newest record is done; nothing recorded: return at once.

        Raises:
            CaptureError: a capture is under way, or the newest record was made in one.
        """
        core = self._core
        core.begin()
        core.refuse_capture("event.synchronize()")
        self._refuse_mark()
        if self.bound is not None:
            core.synchronize(self.bound, ("event", None))

    def elapsed_time(self, end_event: protocol.Event, /) -> float:
        """Return the milliseconds from this event's record to ``end_event``'s, exactly.

        Raises:
            RuntimeError: one of them lacks timing, was never recorded, or isn't complete by the host's time.
        """
        start, end = self._moment(), self._core.own_event(end_event)._moment()  # noqa: SLF001 - of this very class
        return (end - start) / _PS_PER_MS

    def elapsed_us(self, end_event: SimulatedEvent, /) -> float | None:
        """Return the µs to ``end_event``'s record; None while one of them isn't complete by the host's time.

        Raises:
            RuntimeError: one of them lacks timing, or was never recorded.
        """
        now = self._core.timeline.now
        if any(event.bound is not None and event.bound.time > now for event in (self, end_event)):
            return None
        return self.elapsed_time(end_event) * 1e3

    def belongs_to(self, core: Core) -> bool:
        """Whether the event was made by the device with this core."""
        return self._core is core

    def wait(self, stream: SimulatedStream) -> None:
        """Let ``stream`` wait for this event: what :meth:`SimulatedStream.wait_event` does."""
        core = self._core
        capture = core.capture
        if self.mark is not None and capture is not None and self.mark.capture == capture.id:
            capture.join(stream, self.mark)
            return
        self._refuse_mark()
        if capture is not None and capture.owns(stream) and (self.external or self.bound is not None):
            msg = (
                f"stream {stream.name!r} is being captured into graph {capture.graph.name!r} and can't wait for an "
                "event from outside of the capture; wait before the capture, or record a plain event inside it"
            )
            raise CaptureError(msg)
        if self.bound is not None:
            core.timeline.wait(stream.lane, self.bound, ("event", None))

    def _moment(self) -> int:
        if not self.timed:
            msg = "elapsed_time() needs events made with enable_timing=True"
            raise RuntimeError(msg)
        if self.bound is None or self.mark is not None:
            msg = "elapsed_time() needs events that were recorded, outside of a capture"
            raise RuntimeError(msg)
        if self.bound.time > self._core.timeline.now:
            msg = "elapsed_time() of an event that isn't complete; synchronize() with it, or query() until it is"
            raise RuntimeError(msg)
        return self.bound.time

    def _refuse_mark(self) -> None:
        if self.mark is not None:
            msg = (
                f"the event was recorded inside the capture of graph {self.mark.graph!r}, where it means an edge of "
                "the graph; record it again outside, or make it with external=True"
            )
            raise CaptureError(msg)


class SimulatedStream:
    """A FIFO of device work."""

    __slots__ = ("__weakref__", "_core", "lane")

    def __init__(self, core: Core, lane: Lane) -> None:
        self._core = core
        self.lane = lane

    @property
    def name(self) -> str:
        """What reports call it; unique on its device."""
        return self.lane.name

    def belongs_to(self, core: Core) -> bool:
        """Whether the stream was made by the device with this core."""
        return self._core is core

    def wait_event(self, event: protocol.Event) -> None:
        """Hold later work until the newest record of ``event`` issued before this call is done; none: no-op.

        Inside a capture, waiting for a plain event that was recorded in it brings this stream into the capture.

        Raises:
            CaptureError: the event belongs to a capture that is over, or a captured stream waits for one from outside.
        """
        self._core.begin()
        self._core.own_event(event).wait(self)

    def wait_stream(self, stream: protocol.Stream) -> None:
        """Hold later work until all work enqueued on ``stream`` so far, its waits included, is done.

        Raises:
            CaptureError: this stream is being captured, and the other isn't.
        """
        core = self._core
        core.begin()
        other = core.own_stream(stream)
        capture = core.capture
        if capture is not None and capture.owns(other):
            if other is not self:
                capture.join(self, capture.mark(other))
        elif capture is not None and capture.owns(self):
            msg = (
                f"stream {self.name!r} is being captured and can't wait for {other.name!r}, which has no part in the "
                "capture; wait before the capture, or fork the other stream inside it"
            )
            raise CaptureError(msg)
        else:
            core.timeline.wait(self.lane, core.timeline.tail(other.lane), ("wait_stream", None))

    def synchronize(self) -> None:
        """Block the host until the stream is empty.

        Raises:
            CaptureError: a capture is under way.
        """
        core = self._core
        core.begin()
        core.refuse_capture("stream.synchronize()")
        core.synchronize(core.timeline.tail(self.lane), ("wait_stream", None))

    def __repr__(self) -> str:
        return f"SimulatedStream({self.name!r})"
