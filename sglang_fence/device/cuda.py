"""CUDA: a thin layer on ``torch.cuda``. Declarations of accesses and virtual costs are ignored here."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import count
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import torch

from sglang_fence import native
from sglang_fence.device.cuda_calibration import calibrate
from sglang_fence.device.cuda_timing import (
    DRIVER_LIBRARY,
    CudaObserverStream,
    make_timed_event,
    open_compiled,
    open_driver,
)
from sglang_fence.garbage import no_garbage_collection
from sglang_fence.observe.moments import PlainMoments

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from sglang_fence.device import protocol
    from sglang_fence.device.buffers import SharedBuffer
    from sglang_fence.observe.device_times import Offsets
    from sglang_fence.observe.moments import FenceMoments
    from sglang_fence.observe.timing import TimedEvent


class CudaEvent:
    """``torch.cuda.Event``, recording on our streams."""

    __slots__ = ("raw",)

    def __init__(self, raw: Any) -> None:  # noqa: ANN401 - torch's event
        self.raw = raw

    def record(self, stream: protocol.Stream | None = None) -> None:
        """See the protocol."""
        self.raw.record(torch.cuda.current_stream() if stream is None else _raw(stream))

    def query(self) -> bool:
        """See the protocol."""
        return bool(self.raw.query())

    def synchronize(self) -> None:
        """See the protocol."""
        self.raw.synchronize()

    def elapsed_time(self, end_event: protocol.Event, /) -> float:
        """See the protocol."""
        return float(self.raw.elapsed_time(_raw_event(end_event)))


class CudaStream:
    """``torch.cuda.Stream`` with a name."""

    __slots__ = ("handle", "name", "raw")

    def __init__(self, name: str, raw: Any) -> None:  # noqa: ANN401 - torch's stream
        self.name = name
        self.raw = raw
        self.handle: int = raw.cuda_stream

    def wait_event(self, event: protocol.Event) -> None:
        """See the protocol."""
        self.raw.wait_event(_raw_event(event))

    def wait_stream(self, stream: protocol.Stream) -> None:
        """See the protocol."""
        self.raw.wait_stream(_raw(stream))

    def synchronize(self) -> None:
        """See the protocol."""
        self.raw.synchronize()


class CudaGraph:
    """``torch.cuda.CUDAGraph`` with a name."""

    __slots__ = ("name", "raw")

    def __init__(self, name: str) -> None:
        self.name = name
        self.raw: Any = torch.cuda.CUDAGraph()

    def replay(self) -> None:
        """See the protocol."""
        self.raw.replay()


class CudaDevice:
    """The current CUDA device.

    Args:
        compiled: whether moments are taken by the compiled part, where there is one.
    """

    def __init__(self, *, compiled: bool = True) -> None:
        self._compiled = open_compiled() if compiled else None
        self._device = torch.device("cuda", torch.cuda.current_device())
        # One pool for all graphs of a stream: they are replayed one after the other, and a step's results are read
        # before the next. Graphs of two streams may replay at once, and must not share memory.
        self._pools: dict[int, Any] = {}
        self._buffer_ids = count()
        self._streams: dict[int, CudaStream] = {}

    @property
    def name(self) -> str:
        """``cuda``."""
        return "cuda"

    @property
    def torch_device(self) -> torch.device:
        """See the protocol."""
        return self._device

    @property
    def asynchronous(self) -> bool:
        """CUDA streams run apart from the host."""
        return True

    def Event(self, *, enable_timing: bool = False, external: bool = False) -> CudaEvent:  # noqa: N802 - torch's name
        """See the protocol."""
        event: Any = torch.cuda.Event
        return CudaEvent(
            event(enable_timing=enable_timing, external=True) if external else event(enable_timing=enable_timing)
        )

    def Stream(self, name: str, *, priority: int = 0) -> CudaStream:  # noqa: N802 - torch's name
        """See the protocol."""
        return self._named(torch.cuda.Stream(priority=priority), name)

    @property
    def driver_library(self) -> str | None:
        """See the protocol."""
        return None if self._compiled is None or not native.part(native.QUICK).usable else DRIVER_LIBRARY

    def observer_stream(self, name: str) -> CudaObserverStream:
        """See the protocol. A priority of its own keeps it from being another of PyTorch's streams in disguise."""
        return CudaObserverStream(name, torch.cuda.Stream(priority=-1), open_driver())

    def timed_event(self) -> TimedEvent:
        """See the protocol."""
        return make_timed_event(compiled=self._compiled is not None)

    def as_event(self, timed: TimedEvent) -> CudaEvent | None:
        """See the protocol: one record on the stream, which costs the device about 1 µs, instead of two."""
        raw: Any = getattr(timed, "raw", None)
        return None if raw is None else CudaEvent(raw)

    def fence_moments(self, end: TimedEvent, released: TimedEvent, wait: TimedEvent, /) -> FenceMoments:
        """See the protocol: in one call, where that part is compiled."""
        if self._compiled is None:
            return PlainMoments(end, released, wait)
        return self._compiled.fence_moments(end, released, wait)

    def host_ns(self) -> int:
        """Real time."""
        return perf_counter_ns()

    def is_capturing(self) -> bool:
        """Whether the current stream captures; nothing else is ever captured while it doesn't."""
        return bool(torch.cuda.is_current_stream_capturing())

    def calibrate(
        self,
        forward: protocol.Stream,
        schedule: protocol.Stream,
        observer: protocol.ObserverStream,
    ) -> Offsets:
        """See the protocol."""
        if not (
            isinstance(forward, CudaStream)
            and isinstance(schedule, CudaStream)
            and isinstance(observer, CudaObserverStream)
        ):
            msg = "calibrate() needs streams of the CUDA device"
            raise TypeError(msg)
        return calibrate(forward, schedule, observer)

    def Graph(self, name: str) -> CudaGraph:  # noqa: N802 - beside torch's CUDAGraph
        """See the protocol."""
        return CudaGraph(name)

    def current_stream(self) -> CudaStream:
        """See the protocol."""
        raw = torch.cuda.current_stream()
        return self._streams.get(raw.cuda_stream) or self._named(raw, "default")

    @contextmanager
    def stream(self, stream: protocol.Stream) -> Generator[None]:
        """See the protocol."""
        with torch.cuda.stream(_raw(stream)):
            yield

    @contextmanager
    def capture(self, graph: protocol.Graph) -> Generator[None]:
        """See the protocol. Captures thread-locally: other threads may go on using the device.

        Garbage isn't collected meanwhile: it might hold a graph of an engine that is gone, and to free a graph while a
        stream captures breaks the capture.
        """
        raw: Any = getattr(graph, "raw", None)
        stream = torch.cuda.current_stream()
        pool = self._pools.get(stream.cuda_stream)
        if pool is None:
            pool = self._pools[stream.cuda_stream] = torch.cuda.graph_pool_handle()
        context: Any = torch.cuda.graph(
            raw,
            pool=pool,
            stream=stream,
            capture_error_mode="thread_local",
        )
        with no_garbage_collection(), context:
            yield

    def is_current_stream_capturing(self) -> bool:
        """See the protocol."""
        return bool(torch.cuda.is_current_stream_capturing())

    def launch(
        self,
        name: str,  # noqa: ARG002 - for devices that report it
        body: Callable[[], object],
        *,
        reads: Sequence[protocol.Access] = (),  # noqa: ARG002 - for devices that check it
        writes: Sequence[protocol.Access] = (),  # noqa: ARG002 - for devices that check it
    ) -> None:
        """Run the body: its operations go to the current stream."""
        body()

    def host(self, name: str) -> None:
        """Real time passes by itself."""

    def set_step(self, step: int) -> None:
        """Not needed here."""

    def freed(self, buffer_id: int, stream: protocol.Stream) -> None:
        """PyTorch's allocator hears of it by itself."""

    def check_access(self, buffer: SharedBuffer) -> None:
        """Accesses aren't checked here."""

    def register_buffer(self, buffer: SharedBuffer) -> int:  # noqa: ARG002 - for devices that check
        """See the protocol."""
        return next(self._buffer_ids)

    def virtual_seconds(self) -> None:
        """Time is real here."""

    def synchronize(self) -> None:
        """See the protocol."""
        torch.cuda.synchronize()

    def _named(self, raw: Any, name: str) -> CudaStream:  # noqa: ANN401 - torch's stream
        stream = CudaStream(name, raw)
        self._streams[raw.cuda_stream] = stream
        return stream


def _raw(stream: protocol.Stream) -> Any:  # noqa: ANN401 - torch's stream
    if not isinstance(stream, CudaStream):
        msg = f"{stream!r} isn't a stream of the CUDA device"
        raise TypeError(msg)
    return stream.raw


def _raw_event(event: protocol.Event) -> Any:  # noqa: ANN401 - torch's event
    if not isinstance(event, CudaEvent):
        msg = f"{event!r} isn't an event of the CUDA device"
        raise TypeError(msg)
    return event.raw
