"""``Marks``: the ranges of one sampled step, on the host and, where they enqueue device work, on the forward stream.

Preallocated; an event pair is made the first time its place is used, and reused afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sglang_fence.catalogue.schema import Track
from sglang_fence.catalogue.spans import SPANS
from sglang_fence.observe.record import NOT_YET

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglang_fence.observe.timing import TimedEvent, TimingDevice

MOST = 96
"""Ranges kept of one step; a model with many segments has a few dozen."""

ON_DEVICE = frozenset(span.name for span in SPANS if span.track is Track.FORWARD)
"""Ranges that are spans of the forward stream: what is enqueued in them is timed there."""

ON_HOST = frozenset(span.name for span in SPANS if span.track is Track.HOST)


class Mark(NamedTuple):
    """One range, read."""

    name: str
    depth: int
    phase: int
    """How many phases of the step were resolved when it began."""
    start_ns: int
    """The host's clock."""
    end_ns: int
    device_us: tuple[float, float] | None
    """Its start and end on the device's timeline; None for a range of the host."""


class Marks:
    """The ranges of one step."""

    __slots__ = (
        "_depth",
        "_device",
        "_ends",
        "_events",
        "_forward",
        "_names",
        "_now",
        "_phases",
        "_starts",
        "_timed",
        "lost",
        "used",
    )

    def __init__(self, now: Callable[[], int], device: TimingDevice | None) -> None:
        self._now = now
        self._device = device
        self._forward: object | None = None
        self._names = [""] * MOST
        self._starts = [0] * MOST
        self._ends = [0] * MOST
        self._phases = [0] * MOST
        self._timed = [-1] * MOST
        """Depth of each range, and −1 − depth for one that isn't timed on the device."""
        self._events: list[tuple[TimedEvent, TimedEvent]] = []
        self._depth = 0
        self.used = 0
        self.lost = 0
        """Ranges for which there was no place."""

    def reset(self) -> None:
        """Begin a step."""
        self._forward = None
        self._depth = self.used = self.lost = 0

    def on(self, forward: object) -> None:
        """Say which stream the step's forward work goes to."""
        self._forward = forward

    def begin(self, name: str, phase: int) -> int:
        """Note that a range begins; return its place, for :meth:`end`."""
        place = self.used
        if place == MOST:
            self.lost += 1
            return -1
        self.used += 1
        self._names[place] = name
        self._phases[place] = phase
        self._ends[place] = NOT_YET
        self._timed[place] = -1 - self._depth
        if name in ON_DEVICE and self._device is not None and self._forward is not None:
            while len(self._events) <= place:
                self._events.append((self._device.timed_event(), self._device.timed_event()))
            self._events[place][0].record(self._forward)
            self._timed[place] = self._depth
        self._depth += 1
        self._starts[place] = self._now()
        return place

    def end(self, place: int) -> None:
        """Note that the range at ``place`` ends."""
        if place < 0:
            return
        self._depth -= 1
        self._ends[place] = self._now()
        if self._timed[place] >= 0:
            self._events[place][1].record(self._forward)

    def add_host(self, name: str, start_ns: int, end_ns: int) -> None:
        """Add a range of the host that is over."""
        place = self.begin(name, 0)
        if place >= 0:
            self.end(place)
            self._starts[place], self._ends[place] = start_ns, end_ns

    def read(self, read: Callable[[TimedEvent], float | None]) -> list[Mark] | None:
        """Return the ranges that are over, in order of their begin; None while a device time isn't there."""
        marks: list[Mark] = []
        for place in range(self.used):
            if self._ends[place] == NOT_YET:
                continue  # still open: the step's last range may be, while its drain runs
            depth = self._timed[place]
            device = None
            if depth >= 0:
                start, end = read(self._events[place][0]), read(self._events[place][1])
                if start is None or end is None:
                    return None
                device = (start, end)
            marks.append(
                Mark(
                    self._names[place],
                    depth if depth >= 0 else -1 - depth,
                    self._phases[place],
                    self._starts[place],
                    self._ends[place],
                    device,
                ),
            )
        return marks
