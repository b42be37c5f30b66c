"""The hazard checker: pairs of accesses to the same rows that nothing orders.

It looks at order alone, never at time, so one run covers every interleaving that has the same synchronisation. Of each
buffer it keeps, lane by lane, the reads and the writes that the host isn't known to have waited for. A new access comes
after those of another lane up to the count that its clock holds for that lane; only what lies beyond is looked at row
by row, and in a well fenced run nothing does.

A host access comes before all that is enqueued later, so it is compared with what is outstanding and never kept.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import TYPE_CHECKING

from sglang_fence.device.simulated.accesses import Hazard, HazardKind, Op, Touch, Watcher
from sglang_fence.device.simulated.ordering import JoinLog, Ordering

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sglang_fence.device.simulated.timeline import Timeline

_REMEMBERED_OPS = 20_000
_PRUNE_FROM = 32


class _Track:
    """The outstanding reads, or writes, of one buffer by one lane, in the order of enqueueing."""

    __slots__ = ("accesses", "limit", "seqs")

    def __init__(self) -> None:
        self.seqs: list[int] = []
        self.accesses: list[tuple[Op, Sequence[int]]] = []
        self.limit = _PRUNE_FROM

    def prune(self, known: int) -> None:
        """Forget what comes up to count ``known``; twice as much as is left may gather before the next time."""
        done = bisect_right(self.seqs, known)
        del self.seqs[:done], self.accesses[:done]
        self.limit = max(_PRUNE_FROM, 2 * len(self.seqs))


class _Buffer:
    """The outstanding accesses of one buffer."""

    __slots__ = ("name", "reads", "rows", "writes")

    def __init__(self, name: str, rows: int) -> None:
        self.name = name
        self.rows = rows
        self.reads: dict[int, _Track] = {}
        self.writes: dict[int, _Track] = {}


_Pairs = dict[tuple[int, HazardKind, int], tuple[Op, set[int]]]


class HazardChecker:
    """Takes accesses in the order in which they are enqueued, and keeps the hazards."""

    def __init__(self, timeline: Timeline, *, joins: JoinLog | None = None, limit: int = 1000) -> None:
        """Check what is enqueued on ``timeline``.

        Args:
            timeline: whose clocks say what is ordered.
            joins: the timeline's own log, for :meth:`ordering`; None: orderings can't be explained.
            limit: how many hazards to store. Further ones are counted, so that a run without a fence stays bounded.
        """
        self._host = timeline.host
        self._joins = joins if joins is not None else JoinLog()
        self._limit = limit
        self._buffers: dict[int, _Buffer] = {}
        self._freed: deque[int] = deque()
        self._ops: deque[Op] = deque(maxlen=_REMEMBERED_OPS)
        self._found: list[tuple[int, int, Hazard]] = []
        self.watcher: Watcher | None = None
        """Hears of each op with its accesses, as it is enqueued."""
        self.count = 0
        """How many hazards there were, stored or not."""

    @property
    def hazards(self) -> list[Hazard]:
        """The stored hazards, in the order of their first, then their second access, then kind, then buffer."""
        ordered = sorted(self._found, key=lambda entry: (entry[0], entry[1], entry[2].kind, entry[2].buffer))
        return [hazard for _first, _second, hazard in ordered]

    @property
    def outstanding(self) -> int:
        """How many accesses are kept."""
        return sum(
            len(track.seqs)
            for buffer in self._buffers.values()
            for tracks in (buffer.reads, buffer.writes)
            for track in tracks.values()
        )

    def add_buffer(self, buffer_id: int, name: str, rows: int) -> None:
        """Take up a buffer of ``rows`` rows."""
        self._buffers[buffer_id] = _Buffer(name, rows)

    def buffer_name(self, buffer_id: int) -> str | None:
        """Return what a buffer is called; None once it is forgotten."""
        buffer = self._buffers.get(buffer_id)
        return None if buffer is None else buffer.name

    def enqueue(self, op: Op, reads: Sequence[Touch], writes: Sequence[Touch]) -> None:
        """Compare an op, just enqueued on its lane, with what is outstanding; then keep its own accesses."""
        self._ops.append(op)
        if self.watcher is not None:
            self.watcher(op, reads, writes)
        pairs: _Pairs = {}
        for buffer_id, rows in reads:
            buffer = self._buffers.get(buffer_id)
            # A buffer whose end the host has already waited past is forgotten: any access to it is ordered.
            if buffer is not None:
                self._compare(op, buffer_id, rows, buffer.writes, "RAW", pairs)
                self._keep(op, rows, buffer.reads)
        for buffer_id, rows in writes:
            buffer = self._buffers.get(buffer_id)
            if buffer is not None:
                self._compare(op, buffer_id, rows, buffer.reads, "WAR", pairs)
                self._compare(op, buffer_id, rows, buffer.writes, "WAW", pairs)
                self._keep(op, rows, buffer.writes)
        if pairs:
            self._report(op, pairs)

    def free(self, op: Op, buffer_id: int) -> None:
        """Take the end of a buffer as a write to all of its rows; forget it once the host has waited past it."""
        buffer = self._buffers.get(buffer_id)
        if buffer is None:
            return
        self.enqueue(op, (), ((buffer_id, range(buffer.rows)),))
        self._freed.append(buffer_id)
        while self._freed:
            oldest = self._buffers.get(self._freed[0])
            if oldest is not None and not self._settled(oldest):
                break
            self._buffers.pop(self._freed.popleft(), None)

    def ordering(self, first: str, second: str) -> Ordering | None:
        """Say which operation orders the op called ``first`` before the one called ``second``; None: nothing does.

        Raises:
            ValueError: one of the names is not among the newest ops.
        """
        one, two = self._find(first), self._find(second)
        if one.order >= two.order:
            return None
        if one.lane is self._host:
            text = f"host order: {second} was enqueued after {first}"
            return Ordering("host", text, (text,))
        if one.lane is not two.lane and two.clock.get(one.lane.id, 0) < one.seq:
            return None
        return self._joins.explain((one.lane, one.seq), (two.lane, two.seq))

    def _find(self, label: str) -> Op:
        for op in reversed(self._ops):
            if op.label == label:
                return op
        msg = f"no kernel {label!r} among the last {len(self._ops)}; names read like 'gather#1' or 'graph[0]/gather'"
        raise ValueError(msg)

    def _compare(
        self,
        op: Op,
        buffer_id: int,
        rows: Sequence[int],
        tracks: dict[int, _Track],
        kind: HazardKind,
        pairs: _Pairs,
    ) -> None:
        clock, own = op.clock, op.lane.id
        for lane_id, track in tracks.items():
            known = clock.get(lane_id, 0)
            if lane_id == own or not track.seqs or track.seqs[-1] <= known:
                continue
            wanted = frozenset(rows)
            for earlier, touched in track.accesses[bisect_right(track.seqs, known) :]:
                common = wanted.intersection(touched)
                if common:
                    pairs.setdefault((earlier.order, kind, buffer_id), (earlier, set()))[1].update(common)

    def _keep(self, op: Op, rows: Sequence[int], tracks: dict[int, _Track]) -> None:
        lane_id = op.lane.id
        if lane_id == self._host.id:
            return
        track = tracks.get(lane_id)
        if track is None:
            track = tracks[lane_id] = _Track()
        elif len(track.seqs) >= track.limit:
            track.prune(self._host.clock.get(lane_id, 0))
        track.seqs.append(op.seq)
        track.accesses.append((op, rows))

    def _settled(self, buffer: _Buffer) -> bool:
        known = self._host.clock
        return all(
            not track.seqs or track.seqs[-1] <= known.get(lane_id, 0)
            for tracks in (buffer.reads, buffer.writes)
            for lane_id, track in tracks.items()
        )

    def _report(self, op: Op, pairs: _Pairs) -> None:
        for (order, kind, buffer_id), (earlier, rows) in pairs.items():
            self.count += 1
            if len(self._found) < self._limit:
                name = self._buffers[buffer_id].name
                hazard = Hazard(
                    kind=kind,
                    buffer=name,
                    rows=tuple(sorted(rows)),
                    first=earlier.label,
                    second=op.label,
                    first_step=earlier.step,
                    second_step=op.step,
                    missing=self._missing(earlier, op),
                )
                self._found.append((order, op.order, hazard))

    def _missing(self, first: Op, second: Op) -> str:
        waiter = "by the host" if second.lane is self._host else f"on '{second.lane.name}'"
        return (
            f"no event recorded on '{first.lane.name}' after {first.label} is waited for {waiter} before {second.label}"
        )
