"""A device module that hands everything on to another: the base of one that listens."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    import torch

    from sglang_fence.device import protocol
    from sglang_fence.device.buffers import SharedBuffer
    from sglang_fence.observe.device_times import Offsets
    from sglang_fence.observe.moments import FenceMoments
    from sglang_fence.observe.timing import TimedEvent


class DelegatingDevice:
    """Every method as the protocol has it; streams, events and graphs are the inner device's own."""

    def __init__(self, inner: protocol.DeviceModule) -> None:
        self.inner = inner

    @property
    def name(self) -> str:
        """See the protocol."""
        return self.inner.name

    @property
    def torch_device(self) -> torch.device:
        """See the protocol."""
        return self.inner.torch_device

    @property
    def asynchronous(self) -> bool:
        """See the protocol."""
        return self.inner.asynchronous

    def Event(self, *, enable_timing: bool = False, external: bool = False) -> protocol.Event:  # noqa: N802 - torch's
        """See the protocol."""
        if external:
            return self.inner.Event(enable_timing=enable_timing, external=True)
        return self.inner.Event(enable_timing=enable_timing)

    def Stream(self, name: str, *, priority: int = 0) -> protocol.Stream:  # noqa: N802 - torch.cuda's name
        """See the protocol."""
        return self.inner.Stream(name, priority=priority)

    def observer_stream(self, name: str) -> protocol.ObserverStream:
        """See the protocol."""
        return self.inner.observer_stream(name)

    def timed_event(self) -> TimedEvent:
        """See the protocol."""
        return self.inner.timed_event()

    def as_event(self, timed: TimedEvent) -> protocol.Event | None:
        """See the protocol."""
        return self.inner.as_event(timed)

    @property
    def driver_library(self) -> None:
        """Nothing may pass by this device."""

    def fence_moments(self, end: TimedEvent, released: TimedEvent, wait: TimedEvent, /) -> FenceMoments:
        """See the protocol."""
        return self.inner.fence_moments(end, released, wait)

    def host_ns(self) -> int:
        """See the protocol."""
        return self.inner.host_ns()

    def is_capturing(self) -> bool:
        """See the protocol."""
        return self.inner.is_capturing()

    def calibrate(
        self,
        forward: protocol.Stream,
        schedule: protocol.Stream,
        observer: protocol.ObserverStream,
    ) -> Offsets:
        """See the protocol."""
        return self.inner.calibrate(forward, schedule, observer)

    def current_stream(self) -> protocol.Stream:
        """See the protocol."""
        return self.inner.current_stream()

    def stream(self, stream: protocol.Stream) -> AbstractContextManager[None]:
        """See the protocol."""
        return self.inner.stream(stream)

    def capture(self, graph: protocol.Graph) -> AbstractContextManager[None]:
        """See the protocol."""
        return self.inner.capture(graph)

    def Graph(self, name: str) -> protocol.Graph:  # noqa: N802 - beside torch.cuda's CUDAGraph
        """See the protocol."""
        return self.inner.Graph(name)

    def is_current_stream_capturing(self) -> bool:
        """See the protocol."""
        return self.inner.is_current_stream_capturing()

    def launch(
        self,
        name: str,
        body: Callable[[], object],
        *,
        reads: Sequence[protocol.Access] = (),
        writes: Sequence[protocol.Access] = (),
    ) -> None:
        """See the protocol."""
        self.inner.launch(name, body, reads=reads, writes=writes)

    def host(self, name: str) -> None:
        """See the protocol."""
        self.inner.host(name)

    def set_step(self, step: int) -> None:
        """See the protocol."""
        self.inner.set_step(step)

    def freed(self, buffer_id: int, stream: protocol.Stream) -> None:
        """See the protocol."""
        self.inner.freed(buffer_id, stream)

    def check_access(self, buffer: SharedBuffer) -> None:
        """See the protocol."""
        self.inner.check_access(buffer)

    def register_buffer(self, buffer: SharedBuffer) -> int:
        """See the protocol."""
        return self.inner.register_buffer(buffer)

    def virtual_seconds(self) -> float | None:
        """See the protocol."""
        return self.inner.virtual_seconds()

    def synchronize(self) -> None:
        """See the protocol."""
        self.inner.synchronize()
