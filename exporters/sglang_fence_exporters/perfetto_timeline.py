"""``Timeline``: puts the slices of steps in order, gives each a lane on which it nests, and draws the arrows.

Slices of a Perfetto track have to nest, and events at one time take effect in the order in which they were written.
Steps come one after the other, but overlap in time. So slices wait until no later step can begin before them, are then
written in order of time, and one that would overlap another without nesting goes to the next lane of its track.
"""

from __future__ import annotations

from dataclasses import replace
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

from sglang_fence.catalogue import Track
from sglang_fence_exporters.perfetto_packets import COUNTERS, TRACK_NAMES, track_uuid
from sglang_fence_exporters.perfetto_slices import BARRIER, BARRIER_WAIT, READ_DONE, SCHEDULE, Slice, slices_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sglang_fence.observe.trace import StepTrace
    from sglang_fence_exporters.perfetto_packets import Packets

PENDING = 4096
"""So many slices wait at the most; then the oldest is written, whatever may come."""

_RANKS = {track: rank for rank, track in enumerate(TRACK_NAMES)}


class _Lane:
    """Slices that nest. ``reached``: the time of the last event written."""

    __slots__ = ("open", "reached", "uuid")

    def __init__(self, uuid: int) -> None:
        self.uuid = uuid
        self.open: list[Slice] = []
        self.reached = 0

    def takes(self, one: Slice, *, nested: bool) -> bool:
        """Whether ``one`` can be written here, once what ended before it is closed."""
        if one.start_ns < self.reached:
            return False
        return not self.open or (nested and one.end_ns <= self.open[-1].end_ns)


class Timeline:
    """Takes traces in the order in which steps finish. What it keeps is bounded by :data:`PENDING`.

    A track has as many lanes as slices overlap, and more only where slices come so late that what is after them is
    written; none is lost.
    """

    def __init__(self, packets: Packets) -> None:
        self._packets = packets
        self._pending: list[tuple[int, int, bool, int, int, Slice]] = []
        self._order = count()
        self._arrows = count(1)
        self._barriers: dict[int, Slice] = {}
        """By step: its barrier, on the host, while it isn't written yet and can still be given an arrow."""
        self._lanes: dict[Track, list[_Lane]] = {track: [_Lane(track_uuid(track, 0))] for track in TRACK_NAMES}
        self._counts = dict.fromkeys(COUNTERS, 0.0)
        self._begun = False

    def add(self, trace: StepTrace) -> Iterator[None]:
        """Take a step in and write what is due. Comes up for air after each packet.

        Raises:
            LookupError: a span isn't in the catalogue. Nothing of the step was taken then.
            OSError: the file can't be written.
        """
        slices = slices_of(trace)
        if not self._begun:
            self._begun = True
            self._packets.header(trace.start_ns)
            yield
        self._point_at_wait(slices)
        self._point_at_preparation(trace, slices)
        for one in slices:
            # At one time: arrows leave before they arrive, a mark comes before what begins, the longer holds the shorter.
            key = (one.start_ns, _RANKS[one.track], not one.mark, -one.end_ns, next(self._order))
            heappush(self._pending, (*key, one))
        yield from self._count(trace)
        # Steps begin in order, so nothing that is still to come begins before this one.
        while self._pending and (self._pending[0][0] < trace.start_ns or len(self._pending) > PENDING):
            yield from self._write_next()

    def finish(self) -> None:
        """Write all that is left, and close what is open."""
        if not self._begun:
            self._packets.header(None)
        while self._pending:
            for _ in self._write_next():
                pass
        for lanes in self._lanes.values():
            for lane in lanes:
                for _ in self._close(lane, None):
                    pass

    def _point_at_wait(self, slices: list[Slice]) -> None:
        """Draw the arrow from read-done to the wait that it let go: to its start, or to a mark in it if it had begun.

        Viewers point an arrow at the start of a slice, and turn one round that leads back in time.
        """
        wait = next((one for one in reversed(slices) if one.name == BARRIER_WAIT), None)
        mark = slices[-1]
        if wait is None or mark.name != READ_DONE:
            return
        # No wait ends before what it waits for: where it seems to, that is the clocks' error.
        mark.start_ns = mark.end_ns = min(mark.start_ns, wait.end_ns)
        arrow = next(self._arrows)
        mark.leaving.append(arrow)
        if mark.start_ns <= wait.start_ns:
            wait.arriving.append(arrow)
        else:
            let_go = replace(mark, track=wait.track, leaving=[], arriving=[arrow])
            slices.append(let_go)

    def _point_at_preparation(self, trace: StepTrace, slices: list[Slice]) -> None:
        """Draw the arrow from the barrier to the preparation of the step behind it, if both are traced."""
        source = None if trace.waited_for is None else self._barriers.get(trace.waited_for)
        target = next((one for one in slices if one.name == SCHEDULE), None)
        if source and target and source.start_ns < target.start_ns and source.end_ns <= target.start_ns:
            arrow = next(self._arrows)
            source.leaving.append(arrow)
            target.arriving.append(arrow)
        barrier = next((one for one in reversed(slices) if one.name == BARRIER), None)
        if barrier:
            self._barriers[trace.step] = barrier

    def _count(self, trace: StepTrace) -> Iterator[None]:
        """Write the step's counters where it begins. One without a value is put back to 0, not left as it was."""
        for name, us in zip(COUNTERS, (trace.slack_us, trace.wait_us, trace.lost_us), strict=True):
            if us is not None or self._counts[name]:
                self._counts[name] = us or 0.0
                self._packets.count(name, trace.start_ns, self._counts[name])
                yield

    def _write_next(self) -> Iterator[None]:
        one = heappop(self._pending)[-1]
        if one.name == BARRIER:
            self._barriers = {step: other for step, other in self._barriers.items() if other is not one}
        lanes = self._lanes[one.track]
        # A mark where a slice ends belongs to that slice; another slice there is the next one.
        until_ns = one.start_ns - 1 if one.mark else one.start_ns
        for lane in lanes:
            yield from self._close(lane, until_ns)
        # A step inside a step would look like a part of it.
        nested = one.track is not Track.STEP
        found = next((lane for lane in lanes if lane.takes(one, nested=nested)), None)
        lane = self._add_lane(one.track) if found is None else found
        self._packets.begin(lane.uuid, one)
        lane.reached = one.start_ns
        if not one.mark:
            lane.open.append(one)
        yield

    def _add_lane(self, track: Track) -> _Lane:
        lanes = self._lanes[track]
        lane = _Lane(track_uuid(track, len(lanes)))
        self._packets.lane(track, len(lanes))
        lanes.append(lane)
        return lane

    def _close(self, lane: _Lane, at_ns: int | None) -> Iterator[None]:
        """Write the ends of slices that end at ``at_ns`` or before; None: of all."""
        while lane.open and (at_ns is None or lane.open[-1].end_ns <= at_ns):
            one = lane.open.pop()
            self._packets.end(lane.uuid, one)
            lane.reached = one.end_ns
            yield
