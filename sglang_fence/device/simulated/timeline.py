"""Order and time: the engine under stream programs and the simulated device.

Time is virtual, in integer picoseconds, so that sums are exact. Since a wait binds to a record that was issued before
it, the end of each kernel is known the moment it is enqueued; nothing here ever has to run.

Order is kept as vector clocks with one component a *lane*: lane 0 is the host, each stream is another. A lane's clock
says how far it knows every other lane. It is an immutable mapping that is replaced when the lane joins something new,
and then the lane's own count goes up; so (lane, count) names one state of knowledge, a join of something known costs
one comparison, and a launch or a record never copies a clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sglang_fence.device.simulated.ordering import JoinLog, Why

PS_PER_US = 1_000_000
"""Picoseconds in a microsecond."""

_NOTHING: Mapping[int, int] = {}


def to_ps(us: float) -> int:
    """Return ``us`` microseconds as whole picoseconds, rounded to the nearest; ``us`` is finite."""
    return us * PS_PER_US if isinstance(us, int) else round(us * PS_PER_US)


def to_us(ps: int) -> float:
    """Return ``ps`` picoseconds as microseconds."""
    return ps / PS_PER_US


class Lane:
    """One component of the clocks: the host, or a stream's FIFO."""

    __slots__ = ("clock", "host_seen", "id", "name", "ready", "seq")

    def __init__(self, lane_id: int, name: str) -> None:
        self.id = lane_id
        self.name = name
        self.seq = 0
        """How many kernels were enqueued here, and how often the lane learned of others."""
        self.clock: Mapping[int, int] = _NOTHING
        """Lane id → the highest count of that lane that comes before whatever is enqueued here next."""
        self.ready = 0
        """When all that was enqueued here is done, waits included, in ps. For the host: now."""
        self.host_seen = 0

    def __repr__(self) -> str:
        return f"Lane({self.id}, {self.name!r}, seq={self.seq}, ready={to_us(self.ready)} us)"


class Record:
    """What an event is bound to: a place on a lane, and the moment at which the lane gets there."""

    __slots__ = ("clock", "lane", "seq", "time")

    def __init__(self, lane: Lane, time: int) -> None:
        self.lane = lane
        self.seq = lane.seq
        self.clock = lane.clock
        self.time = time


class Timeline:
    """Lanes, and the operations that order them and let time pass."""

    def __init__(self, joins: JoinLog | None = None) -> None:
        """Start at time 0 with the host alone.

        Args:
            joins: where to note what each lane learned, and through which operation; None: don't.
        """
        self.host = Lane(0, "host")
        self.lanes = [self.host]
        self._joins = joins

    @property
    def now(self) -> int:
        """The host's time in ps."""
        return self.host.ready

    def add_lane(self, name: str) -> Lane:
        """Make a stream's lane. Names need not be unique here."""
        lane = Lane(len(self.lanes), name)
        self.lanes.append(lane)
        return lane

    def advance(self, ps: int) -> None:
        """Let ``ps`` picoseconds pass on the host."""
        self.host.ready += ps

    def launch(self, lane: Lane, cost: int) -> int:
        """Enqueue a kernel of ``cost`` ps on ``lane``; return when it ends, in ps."""
        host = self.host
        if lane.host_seen != host.seq:
            self._see_host(lane)
        lane.seq += 1
        start = max(lane.ready, host.ready)
        lane.ready = end = start + cost
        return end

    def record(self, lane: Lane) -> Record:
        """Enqueue a record: it takes along the lane's waits, and what the host had synchronised with."""
        host = self.host
        if lane.host_seen != host.seq:
            self._see_host(lane)
        lane.ready = max(lane.ready, host.ready)
        return Record(lane, lane.ready)

    @staticmethod
    def tail(lane: Lane) -> Record:
        """Return the end of all that was enqueued on ``lane``, waits included, without enqueueing anything."""
        return Record(lane, lane.ready)

    def wait(self, lane: Lane, record: Record, why: Why) -> None:
        """Hold later work of ``lane`` until ``record`` is reached."""
        self._join(lane, record, why)
        lane.ready = max(lane.ready, record.time, self.host.ready)

    def synchronize(self, record: Record, why: Why) -> None:
        """Block the host until ``record`` is reached; all that any lane gets from here on comes after it."""
        host = self.host
        self._join(host, record, why)
        host.ready = max(host.ready, record.time)

    def _see_host(self, lane: Lane) -> None:
        """Let ``lane`` learn what the host has synchronised with."""
        host = self.host
        self._join(lane, Record(host, host.ready), ("host", None))
        lane.host_seen = host.seq

    def _join(self, lane: Lane, record: Record, why: Why) -> None:
        """Let ``lane`` learn all that comes before ``record``; nothing happens where it knows already."""
        source, seq = record.lane.id, record.seq
        known = lane.clock
        if source == lane.id or known.get(source, 0) >= seq:
            return
        merged = dict(known)
        for other, count in record.clock.items():
            if count > merged.get(other, 0):
                merged[other] = count
        merged[source] = seq
        lane.clock = merged
        lane.seq += 1
        if self._joins is not None:
            self._joins.note(lane, record, why)
