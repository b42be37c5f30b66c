"""The device protocol: what the runtime asks of a device. ``cuda`` and ``simulated`` implement it.

The shapes follow ``torch.cuda`` (events bind as CUDA's do), because the fence is written against that: a *device
module* makes events and streams, knows the current stream, and captures graphs. Nothing above asks which one it is.

Rows of shared buffers are how the hazard checker learns who touches what. A launch declares them; on CUDA the
declaration is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import torch

    from sglang_fence.device.buffers import SharedBuffer
    from sglang_fence.observe.device_times import Offsets
    from sglang_fence.observe.moments import FenceMoments
    from sglang_fence.observe.timing import TimedEvent

Rows = Sequence[int] | Callable[[], Sequence[int]]
"""Rows of a shared buffer. A callable is asked when the access is enqueued: for a node of a graph, at each replay."""

Access = tuple["SharedBuffer", Rows]


class Event(Protocol):
    """A point on a stream, with CUDA's binding: see :meth:`Stream.wait_event`."""

    def record(self, stream: Stream | None = None) -> None:
        """Bind to all work enqueued on ``stream`` (the current one by default) so far.

        Raises:
            RuntimeError: an external event recorded in a capture on a device that lacks such nodes.
        """

    def query(self) -> bool:
        """Whether the work of the newest record is done; true where nothing was recorded. Never blocks."""

    def synchronize(self) -> None:
        """Block the host until the work of the newest record is done."""

    def elapsed_time(self, end_event: Event, /) -> float:
        """Milliseconds from this event to ``end_event``; both need timing and must be complete."""


class Stream(Protocol):
    """A FIFO of device work."""

    @property
    def name(self) -> str:
        """What reports call it: ``forward``, ``schedule`` and so on."""

    def wait_event(self, event: Event) -> None:
        """Hold later work of this stream until the newest record of ``event`` *issued before this call* is done.

        The binding is kept, whatever is recorded later (R10). Without any record it is a no-op.
        """

    def wait_stream(self, stream: Stream) -> None:
        """Hold later work of this stream until all work enqueued on ``stream`` so far is done."""

    def synchronize(self) -> None:
        """Block the host until the stream is empty."""


class ObserverStream(Protocol):
    """A stream that only observes."""

    @property
    def name(self) -> str:
        """What reports call it."""

    def wait_event(self, event: Event) -> None:
        """As :meth:`Stream.wait_event`; the event was recorded before."""


class Graph(Protocol):
    """Captured work that is replayed as a whole."""

    def replay(self) -> None:
        """Enqueue the captured nodes on the current stream; external event nodes re-arm here."""


# Inside DeviceModule these names are its methods.
_Event = Event
_Stream = Stream
_Graph = Graph


class DeviceModule(Protocol):
    """A device, as ``torch.cuda`` is one."""

    @property
    def name(self) -> str:
        """``cuda`` or ``simulated``."""

    @property
    def torch_device(self) -> torch.device:
        """Where tensors live."""

    @property
    def asynchronous(self) -> bool:
        """Whether streams run apart from the host, so that a barrier is needed (R11)."""

    def Event(self, *, enable_timing: bool = False, external: bool = False) -> _Event:  # noqa: N802 - torch.cuda's name
        """Make an event. ``external`` ones become nodes of a graph when recorded in a capture.

        Raises:
            TypeError: external events are missing here.
        """

    def Stream(self, name: str, *, priority: int = 0) -> _Stream:  # noqa: N802 - torch.cuda's name
        """Make a stream of its own."""

    def observer_stream(self, name: str) -> ObserverStream:
        """Make a stream for observing, one that can't be any other of the process in disguise."""

    def timed_event(self) -> TimedEvent:
        """Make a timing event for observing."""

    def as_event(self, timed: TimedEvent) -> _Event | None:
        """Return ``timed`` as an event for the runtime's own use; None where it can't serve both."""

    @property
    def driver_library(self) -> str | None:
        """The driver that the compiled part may call with the handles of events and streams; None: it can't."""

    def fence_moments(self, end: TimedEvent, released: TimedEvent, wait: TimedEvent, /) -> FenceMoments:
        """Return what takes F, R and A around a fence with these events, in as few calls as it can."""

    def host_ns(self) -> int:
        """The host's clock in nanoseconds: ``perf_counter_ns``, or virtual time."""

    def is_capturing(self) -> bool:
        """Whether a stream captures, so that no event may be asked."""

    def calibrate(self, forward: _Stream, schedule: _Stream, observer: ObserverStream) -> Offsets:
        """Measure, on an idle device, what taking device times adds by itself. May synchronise."""

    def current_stream(self) -> _Stream:
        """The stream that launches and replays go to."""

    def stream(self, stream: _Stream) -> AbstractContextManager[None]:
        """Make ``stream`` current for the block."""

    def capture(self, graph: _Graph) -> AbstractContextManager[None]:
        """Record what the block launches on the current stream as nodes of ``graph``, instead of running it.

        Raises:
            CaptureError: a capture is under way already, or the block leaves a side stream unjoined.
        """

    def Graph(self, name: str) -> _Graph:  # noqa: N802 - beside torch.cuda's CUDAGraph
        """Make an empty graph; ``name`` is what reports call it."""

    def is_current_stream_capturing(self) -> bool:
        """Whether launches are being recorded rather than run."""

    def launch(
        self,
        name: str,
        body: Callable[[], object],
        *,
        reads: Sequence[Access] = (),
        writes: Sequence[Access] = (),
    ) -> None:
        """Enqueue one kernel on the current stream.

        ``body`` computes with torch on tensors of the device. It may run later (in virtual time) and, in a graph, once
        a replay; so it takes its inputs from tensors that stay, and leaves its results in tensors or in an object
        that the next body reads. It must not keep a :class:`SharedBuffer` alive that the step is meant to own (R12).

        Args:
            name: the kernel, one of :data:`~sglang_fence.device.kernels.KERNELS` in the runtime.
            body: the computation; its return value is dropped.
            reads: shared buffers read, with the rows.
            writes: shared buffers written, with the rows.
        """

    def host(self, name: str) -> None:
        """Say that the host does the work called ``name`` (virtual time passes; nothing elsewhere)."""

    def set_step(self, step: int) -> None:
        """Say which step the host works for from here on; reports name it. −1 for none."""

    def freed(self, buffer_id: int, stream: _Stream) -> None:
        """Hear that the block of a buffer went back to ``stream``'s allocator: a write to all of its rows (R12)."""

    def check_access(self, buffer: SharedBuffer) -> None:
        """Hear that ``buffer.tensor`` is about to be used.

        Raises:
            UndeclaredAccessError: by a kernel that didn't declare it (simulated device).
        """

    def register_buffer(self, buffer: SharedBuffer) -> int:
        """Take a shared buffer up; return its id, unique for the device's life."""

    def virtual_seconds(self) -> float | None:
        """The host's virtual time since the device was made; None where time is real."""

    def synchronize(self) -> None:
        """Block the host until every stream is empty."""
