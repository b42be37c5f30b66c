"""Kernel bodies: real computations that take effect at the end of their kernel's interval in virtual time."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from sglang_fence.errors import InternalError, UndeclaredAccessError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sglang_fence.device.buffers import SharedBuffer


class Bodies:
    """Bodies that have been enqueued and haven't run, in the order of their kernels' ends, then of enqueueing."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Callable[[], object], str, Sequence[int]]] = []
        self._running: tuple[str, Sequence[int]] | None = None

    @property
    def running(self) -> str | None:
        """The kernel whose body is running."""
        return None if self._running is None else self._running[0]

    def push(self, end: int, order: int, body: Callable[[], object], name: str, declared: Sequence[int]) -> None:
        """Take a body whose kernel ends at ``end`` ps and declared the buffers with the ids ``declared``."""
        heappush(self._heap, (end, order, body, name, declared))

    def run_until(self, now: int) -> None:
        """Run the bodies of all kernels that end by ``now``, in ps. What a body raises comes out here."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            _end, _order, body, name, declared = heappop(heap)
            self._running = (name, declared)
            try:
                body()
            finally:
                self._running = None

    def refuse_inside(self) -> None:
        """Refuse a call to the device from within a body.

        Raises:
            InternalError: a body is running.
        """
        if self._running is not None:
            msg = f"the body of kernel {self._running[0]!r} called the device; call it from the host, before or after"
            raise InternalError(msg)

    def check(self, buffer: SharedBuffer) -> None:
        """Hear that ``buffer`` is about to be used; outside of any body that is the host's own affair.

        Raises:
            UndeclaredAccessError: the running kernel didn't declare it.
        """
        if self._running is not None and buffer.id not in self._running[1]:
            msg = (
                f"kernel {self._running[0]!r} touched {buffer.name!r} without declaring it; "
                "add the buffer and its rows to the launch's reads or writes"
            )
            raise UndeclaredAccessError(msg)
