"""Timing events on CUDA through the compiled part: as :mod:`~sglang_fence.device.cuda_timing`, with fewer calls.

To be imported where that part is there, and nowhere else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sglang_fence.native._moments import Driver, Event, Moments

if TYPE_CHECKING:
    from sglang_fence.observe.moments import FenceMoments


class CompiledEvent(Event):
    """A timing event; ``raw`` is PyTorch's, which made it and keeps it."""

    __slots__ = ("raw",)

    raw: Any


class CompiledDriver:
    """Makes what takes moments through the driver's library.

    Args:
        library: its name, or its path.

    Raises:
        OSError: there is no such library, or it lacks a function.
    """

    def __init__(self, library: str = "libcuda.so.1") -> None:
        self._driver = Driver(library)

    def timed_event(self, raw: Any) -> CompiledEvent:  # noqa: ANN401 - torch's event
        """Return a timing event for PyTorch's, which was recorded before: it is made at its first record."""
        event = CompiledEvent(self._driver, raw.cuda_event)
        event.raw = raw
        return event

    def fence_moments(self, end: Any, released: Any, wait: Any) -> FenceMoments:  # noqa: ANN401 - events of this driver
        """Return what takes F, R and A in one call.

        Raises:
            TypeError: one of the events isn't of the compiled part.
        """
        return Moments(end, released, wait)
