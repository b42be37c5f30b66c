"""``Watchdog``: whether a step has stood still for too long. Told the time; it looks at nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from sglang_fence.observe.record import NO_STEP

if TYPE_CHECKING:
    from sglang_fence.observe.flight.recording import Recording

    _Seen: TypeAlias = tuple[int, int, int, int, int, int]

LOOKS = 8
"""How often it looks within its time."""


class Watchdog:
    """Barks once a stall: when the newest step hasn't come further for so long, and isn't known to be over.

    A step stalls before its barrier as well, in its launch. Idling is no stall: then the results of the newest step are
    in hand, or the device was synchronised behind it.

    Args:
        probe: whose steps.
        seconds: how long is too long.
        began: the time now, in seconds, as for :meth:`look`.
    """

    def __init__(self, probe: Recording, seconds: float, began: float) -> None:
        self._probe = probe
        self.seconds = seconds
        self._seen = self._look()
        self._since = began
        self._barked = False

    @property
    def interval_s(self) -> float:
        """How long to wait between two looks."""
        return min(1.0, self.seconds / LOOKS)

    def look(self, now: float) -> bool:
        """Look, at a time in seconds of a clock that never goes back; return whether a stall has just become one."""
        seen = self._look()
        if seen != self._seen:
            self._seen, self._since, self._barked = seen, now, False
            return False
        if self._barked or now - self._since < self.seconds or not self.is_busy:
            return False
        self._barked = True
        return True

    @property
    def is_busy(self) -> bool:
        """Whether the host waits for results, or the newest step isn't known to be over."""
        progress, newest = self._probe.progress, self._probe.newest
        if newest.step == NO_STEP or newest.started_ns <= progress.settled_ns:
            return False
        return progress.awaited != NO_STEP or newest.step > max(progress.in_hand, progress.timed)

    def _look(self) -> _Seen:
        progress, newest = self._probe.progress, self._probe.newest
        return (
            newest.step,
            newest.launch_ns,
            newest.entered_ns,
            newest.barrier_ns,
            progress.in_hand,
            progress.awaited,
        )
