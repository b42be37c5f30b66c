"""Timing events on CUDA, through the driver: what ``torch.cuda.Event`` does, for two thirds of the host time.

A record through PyTorch costs 2.6 µs on the host of an H200, through the driver's own call 1.7, and a read 1.3 against
0.7; with four records and four reads a step that is the difference between an observer that may stay on and one that
may not. PyTorch makes the events and keeps them; only the calls go past it.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from sglang_fence import native

if TYPE_CHECKING:
    from sglang_fence.device import protocol
    from sglang_fence.device.cuda import CudaStream
    from sglang_fence.device.cuda_compiled import CompiledDriver
    from sglang_fence.observe.timing import TimedEvent

DRIVER_LIBRARY = "libcuda.so.1"

_NOT_READY = 600  # CUDA_ERROR_NOT_READY: the event isn't reached yet


class Driver:
    """The calls of ``libcuda`` that observation takes. Made on the serving thread, used there alone."""

    def __init__(self, library: ctypes.PyDLL) -> None:
        # PyDLL keeps the GIL: giving it up and taking it back would cost as much as the call.
        self.record: Any = library.cuEventRecord
        self.record.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        self.wait: Any = library.cuStreamWaitEvent
        self.wait.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint]
        self.elapsed: Any = getattr(library, "cuEventElapsedTime_v2", None) or library.cuEventElapsedTime
        self.elapsed.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
        self.ms = ctypes.c_float()
        self.ms_at = ctypes.byref(self.ms)


@cache
def open_driver() -> Driver | None:
    """Load the driver's library; None where there is none under its name (ROCm, say)."""
    try:
        return Driver(ctypes.PyDLL("libcuda.so.1"))
    except (OSError, AttributeError):
        return None


@cache
def open_compiled() -> CompiledDriver | None:
    """Load the driver's library by the compiled part; None where one of the two is missing, or it is switched off."""
    if not native.part(native.MOMENTS).usable:
        return None
    from sglang_fence.device import cuda_compiled  # noqa: PLC0415 - it can't be imported where it wasn't compiled

    try:
        return cuda_compiled.CompiledDriver()
    except OSError:
        return None


class DriverEvent:
    """A timing event, recorded and read through the driver; ``raw`` is PyTorch's, which made it and keeps it."""

    __slots__ = ("_driver", "handle", "raw")

    def __init__(self, driver: Driver, raw: Any) -> None:  # noqa: ANN401 - torch's event, which was recorded before
        self._driver = driver
        self.raw = raw
        self.handle: int = raw.cuda_event

    def record(self, stream: CudaStream, /) -> None:
        """Bind to the work enqueued on the stream so far.

        Raises:
            RuntimeError: the driver refused.
        """
        status = self._driver.record(self.handle, stream.handle)
        if status:
            _refuse("cuEventRecord", status)

    def elapsed_us(self, end_event: DriverEvent, /) -> float | None:
        """Return the µs to ``end_event``; None while one of the two isn't reached.

        Raises:
            RuntimeError: the driver refused.
        """
        driver = self._driver
        status = driver.elapsed(driver.ms_at, self.handle, end_event.handle)
        if status == 0:
            return driver.ms.value * 1e3
        if status != _NOT_READY:
            _refuse("cuEventElapsedTime", status)
        return None


class TorchEvent:
    """The same through PyTorch, where there is no driver library by the name that we know."""

    __slots__ = ("raw",)

    def __init__(self, raw: Any) -> None:  # noqa: ANN401 - torch's event
        self.raw = raw

    def record(self, stream: CudaStream, /) -> None:
        """See :class:`DriverEvent`."""
        self.raw.record(stream.raw)

    def elapsed_us(self, end_event: TorchEvent, /) -> float | None:
        """See :class:`DriverEvent`."""
        if not (self.raw.query() and end_event.raw.query()):
            return None
        return float(self.raw.elapsed_time(end_event.raw)) * 1e3


def handle_of(event: TimedEvent) -> int | None:
    """Return the driver's own handle of an event; None where PyTorch records and reads it."""
    handle: object = getattr(event, "handle", None)
    return handle if isinstance(handle, int) else None


class CudaObserverStream:
    """A stream that only observes: what it waits for, it waits for through the driver."""

    __slots__ = ("_driver", "handle", "name", "raw")

    def __init__(self, name: str, raw: Any, driver: Driver | None) -> None:  # noqa: ANN401 - torch's stream
        self.name = name
        self.raw = raw
        self.handle: int = raw.cuda_stream
        self._driver = driver

    def wait_event(self, event: protocol.Event) -> None:
        """Hold later work behind the newest record of ``event``, which was recorded before.

        Raises:
            RuntimeError: the driver refused.
        """
        raw: Any = event.raw  # type: ignore[attr-defined] # unchecked: a wrong event fails all the same; time counts
        if self._driver is None:
            self.raw.wait_event(raw)
            return
        status = self._driver.wait(self.handle, raw.cuda_event, 0)
        if status:
            _refuse("cuStreamWaitEvent", status)


def make_timed_event(*, compiled: bool = True) -> TimedEvent:
    """Make a timing event, the cheapest that works here; ``compiled``: the compiled part's, where there is one."""
    raw: Any = torch.cuda.Event(enable_timing=True)
    raw.record()  # PyTorch makes the event at its first record
    by_compiled = open_compiled() if compiled else None
    if by_compiled is not None:
        return by_compiled.timed_event(raw)
    driver = open_driver()
    return TorchEvent(raw) if driver is None else DriverEvent(driver, raw)


def _refuse(call: str, status: int) -> NoReturn:
    msg = f"{call} failed with CUDA error {status}"
    raise RuntimeError(msg)
