"""``Scenario``: phases one after the other, each served by every rank in turn."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sglang_fence.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sglang_fence.demo.rank import Rank


@dataclass(frozen=True, slots=True)
class Phase:
    """What servers do for a while."""

    name: str
    text: str
    seconds: float
    audited: bool = True
    """Whether the backend declares where its reads end; else it says UNKNOWN."""
    forced: bool = False
    """Whether the coarse fence is forced."""


PHASES: tuple[Phase, ...] = (
    Phase("fine", "fences are fine, extends apart", 900),
    Phase("unknown", "the backend falls back as UNKNOWN", 1_200, audited=False),
    Phase("forced", "the coarse fence is forced", 600, forced=True),
    Phase("recovered", "fences are fine again", 1_200),
)
"""Long enough for the alerts' defaults: a window of 5 minutes, and a warning after 10 more."""


def phases_at(speed: float, phases: Iterable[Phase] = PHASES) -> tuple[Phase, ...]:
    """Return the phases, ``speed`` times as fast.

    Raises:
        ConfigError: that isn't a speed.
    """
    if not 0 < speed < float("inf"):
        msg = f"--speed {speed:g}: give a number above 0, 60 for a minute a second"
        raise ConfigError(msg)
    return tuple(replace(phase, seconds=phase.seconds / speed) for phase in phases)


@dataclass(slots=True)
class Scenario:
    """Plays phases on ranks that serve the same."""

    ranks: Sequence[Rank]
    phases: Sequence[Phase]
    now: Callable[[], float]
    """Seconds, from anywhere."""
    pause: Callable[[], bool]
    """Called after each round of serving; returns whether to end."""
    announce: Callable[[Phase], None]

    def play(self) -> bool:
        """Play all phases once. Returns whether that was to the end."""
        for phase in self.phases:
            self.announce(phase)
            for rank in self.ranks:
                rank.enter(audited=phase.audited, forced=phase.forced)
            ends = self.now() + phase.seconds
            while self.now() < ends:
                self.serve_round()
                if self.pause():
                    return False
        return True

    def serve_round(self) -> None:
        """Let each rank serve the same batch."""
        for rank in self.ranks:
            rank.serve()
