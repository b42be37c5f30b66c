"""``DeviceTimes``: all that taking device times needs, and what was calibrated for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sglang_fence.observe.clock import DeviceClock
    from sglang_fence.observe.timing import ObserverStream, TimingDevice

_STEP_US = 0.25


@dataclass(frozen=True, slots=True)
class Offsets:
    """What was calibrated, in µs. On the simulated device nothing is late."""

    marker_copy_us: float = 0.0
    """How late the copy of a moment reads while the schedule stream waits for the same moment; subtracted."""
    marker_copy_busy_us: float = 0.0
    """How late it reads while the schedule stream computes: then the device gets round to the copy later."""
    idle_wait_us: float = 0.0
    """How long a wait that costs nothing reads. Exported; a wait is computed from A and R, which don't contain it."""
    fine_gap_us: float = 0.0
    """The gap between two forwards whose fence and preparation were early: where the estimate of g starts."""
    launch_us: float = 0.0
    """How long after its launch by the host a forward starts that nothing holds back, at the most."""
    round_trip_ns: int = 0
    """From before the record of an event on an empty stream until it is seen done, at the least."""


@dataclass(slots=True)
class DeviceTimes:
    """Streams, clock, offsets."""

    device: TimingDevice
    schedule: object
    """The schedule stream."""
    observer: ObserverStream
    """Copies moments of forward streams that have no observer stream of their own."""
    clock: DeviceClock
    offsets: Offsets = field(default_factory=Offsets)
    observer_of: dict[object, ObserverStream] = field(default_factory=dict[object, "ObserverStream"])
    natural_gap_us: float = field(init=False)
    """g: the median gap of fine steps whose host was early, followed as they come."""

    def __post_init__(self) -> None:
        self.natural_gap_us = self.offsets.fine_gap_us

    def observe_gap(self, gap_us: float) -> None:
        """Let the estimate of g follow a fine step's gap: half of them lie below a median."""
        if gap_us > self.natural_gap_us:
            self.natural_gap_us = min(gap_us, self.natural_gap_us + _STEP_US)
        else:
            self.natural_gap_us = max(gap_us, self.natural_gap_us - _STEP_US)
