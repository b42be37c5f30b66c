"""``DeviceClock``: device moments on one timeline, and that timeline on the wall clock.

The timeline is µs since the first base event. A base is an event on a stream that does nothing else, recorded at a
known host time; it is renewed, since the float of ms that a device gives between two events loses microseconds over
minutes, and since the two clocks drift. Nothing waits for a base: a new one is taken up once it is done.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from sglang_fence.observe.trace import VIRTUAL_EPOCH_NS

if TYPE_CHECKING:
    from sglang_fence.observe.timing import TimedEvent, TimingDevice

RENEW_NS = 1_000_000_000
"""Age at which a base is renewed."""


class DeviceClock:
    """One device's.

    Args:
        device: makes the base events.
        stream: a stream of the clock's own, always empty.
        virtual: whether the host's clock is virtual time, which is the device's own.
        round_trip_ns: how long it took at the least, at calibration, from before a base's record until it was seen
            done; half of it is how far the two clocks may be off, on a device that gets to a base as fast as then.
    """

    def __init__(self, device: TimingDevice, stream: object, *, virtual: bool, round_trip_ns: int = 0) -> None:
        self._device = device
        self._stream = stream
        self._spare = device.timed_event()
        self._base = device.timed_event()
        self.virtual = virtual
        self._round_trip_ns = round_trip_ns
        self._asked_ns: int | None = None
        self.base_ns = device.host_ns()
        """The host's clock when the base was recorded."""
        self.base_us = self.base_ns / 1e3 if virtual else 0.0
        """The base on the timeline."""
        self._base.record(stream)
        self._epoch_ns = VIRTUAL_EPOCH_NS if virtual else time.time_ns() - device.host_ns()
        self.drift_ns = 0
        """By how much the clocks had come apart when the base was last renewed."""

    def read(self, event: TimedEvent) -> float | None:
        """Return the moment of an event on the timeline; None until it is reached."""
        elapsed = self._base.elapsed_us(event)
        return None if elapsed is None else self.base_us + elapsed

    def on_timeline(self, host_ns: int) -> float:
        """Where the host's moment ``host_ns`` lies on the timeline, in µs."""
        return self.base_us + (host_ns - self.base_ns) / 1e3

    def wall_of_host(self, host_ns: int) -> int:
        """The host's moment ``host_ns`` on the wall clock, in ns since the Unix epoch."""
        return self._epoch_ns + host_ns

    def wall(self, timeline_us: float) -> int:
        """A moment on the timeline on the wall clock, in ns since the Unix epoch.

        A base is reached somewhere between the call that records it and the moment it is seen done: half of that is
        added.
        """
        host_ns = self.base_ns + round((timeline_us - self.base_us) * 1e3)
        return self._epoch_ns + host_ns + self._round_trip_ns // 2

    @property
    def error_ns(self) -> int:
        """How far a device moment may be off on the wall clock, against host moments."""
        return 0 if self.virtual else self._round_trip_ns // 2 + abs(self.drift_ns)

    def renew(self) -> bool:
        """Take up a new base where the old one has aged; return whether one was. Never blocks.

        To be called before the events of a step are recorded, and before they are read: after a pause, the old base
        is minutes away from both. Costs two calls a second.
        """
        if self.virtual:
            return False
        now = self._device.host_ns()
        if now - self.base_ns < RENEW_NS or self._device.is_capturing():
            return False
        renewed = self._asked_ns is not None and self._take_up(self._asked_ns)
        if self._asked_ns is None and now - self.base_ns >= RENEW_NS:
            self._asked_ns = self._device.host_ns()
            self._spare.record(self._stream)
        return renewed

    def _take_up(self, asked_ns: int) -> bool:
        """Make the spare the base, if it is reached; it was recorded at ``asked_ns``."""
        reached = self.read(self._spare)
        if reached is None:
            return False
        self.drift_ns = round((self.on_timeline(asked_ns) - reached) * 1e3)
        self._base, self._spare = self._spare, self._base
        self.base_us, self.base_ns, self._asked_ns = reached, asked_ns, None
        return True
