"""Capture ranges: a profiler is told to begin at one step and to end behind another.

It is for ``nsys profile --capture-range=cudaProfilerApi``, which captures between the two calls. Nothing is installed
where nobody asks for it, and then a step pays nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sglang_fence.observe.observer import Observer

if TYPE_CHECKING:
    from collections.abc import Callable

IN_FLIGHT = 2
"""So many steps the overlap keeps on the device: the capture ends that much later, so that the last one is in it."""


class StepRange(NamedTuple):
    """Steps ``first`` to ``last``, both of them included."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> StepRange:
        """Read ``N:M``.

        Raises:
            ValueError: it isn't two whole numbers, the first no greater than the second.
        """
        first, colon, last = text.partition(":")
        if not (colon and first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
            msg = "write the first and the last step, 100:120"
            raise ValueError(msg)
        return cls(int(first), int(last))


class ProfiledSteps(Observer):
    """Tells the profiler. Both calls are made on the serving thread, between two steps.

    Args:
        steps: which ones.
        start: begins the capture.
        stop: ends it.
    """

    def __init__(self, steps: StepRange, start: Callable[[], None], stop: Callable[[], None]) -> None:
        self._first = steps.first
        self._behind = steps.last + IN_FLIGHT
        self._start = start
        self._stop = stop
        self._begun = False
        self._over = False

    def step_started(self, step: int) -> None:
        """Begin or end, if it is time. A serving loop that counts its steps from 0 again begins no second capture."""
        if self._over or step < self._first:
            return
        if not self._begun:
            self._begun = True
            self._start()
        elif step > self._behind:
            self._end()

    def run_ended(self) -> None:
        """End a capture that is still open."""
        if self._begun and not self._over:
            self._end()

    def _end(self) -> None:
        self._over = True
        self._stop()
