"""``FlightOptions``: what the flight recorder is told at start."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from sglang_fence.errors import ConfigError
from sglang_fence.observe.flight.files import DumpFiles
from sglang_fence.observe.flight.ring import DEFAULT_STEPS, FlightRing

SHORTEST_S = 0.1
LONGEST_S = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class FlightOptions:
    """Checked.

    Raises:
        ConfigError: a number of steps or of seconds that can't be served.
    """

    steps: int = DEFAULT_STEPS
    """How many are kept; 0: there is no flight recorder."""
    folder: Path | None = None
    """Where dumps go; None: the system's folder for temporary files."""
    watchdog_s: float = 0.0
    """After how long without a move a step counts as stalled; 0: no watchdog."""
    rank: str = "0"
    """What this process is called among its peers."""

    def __post_init__(self) -> None:
        if self.watchdog_s and not SHORTEST_S <= self.watchdog_s <= LONGEST_S:  # which NaN isn't, either
            msg = f"a watchdog of {self.watchdog_s:g} seconds: give {SHORTEST_S:g} to {LONGEST_S:g}, or 0 for none"
            raise ConfigError(msg)
        if self.steps:
            FlightRing.check(self.steps)
        elif self.watchdog_s:
            msg = "a watchdog without a flight recorder has nothing to write: keep at least one step, or leave it out"
            raise ConfigError(msg)

    def files(self) -> DumpFiles:
        """Say where dumps go; the folder is made with the first of them.

        Raises:
            ConfigError: it can't be made or written.
        """
        if self.folder is not None:
            return DumpFiles(self.folder, self.rank)
        try:
            return DumpFiles(Path(tempfile.gettempdir()), self.rank)
        except FileNotFoundError as error:
            msg = "the system has no folder for temporary files: name one for the dumps"
            raise ConfigError(msg) from error

    def ring(self) -> FlightRing | None:
        """Make the ring; None where there is no flight recorder."""
        return FlightRing(self.steps) if self.steps else None
