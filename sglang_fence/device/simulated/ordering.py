"""Which operation orders two kernels: a bounded memory of what each lane learned, and from whom."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sglang_fence.device.simulated.timeline import Lane, Record

JoinKind = Literal["event", "wait_stream", "host", "graph", "fork"]
"""An event wait; wait_stream; host synchronisation; order of one graph's replays; an edge inside a graph."""

Why = tuple[JoinKind, str | None]
"""The operation of a join, and the event's name where it has one."""

OrderKind = Literal["event", "wait_stream", "host", "graph", "fork", "stream", "forgotten"]
"""A join's kind; ``stream``: the order of one stream's work; ``forgotten``: ordered, by a join no longer remembered."""

_REMEMBERED_A_LANE = 4096


@dataclass(frozen=True, slots=True)
class Ordering:
    """What orders one kernel before another."""

    kind: OrderKind
    """The operation that the second kernel's stream waited behind."""

    operation: str
    """That operation in words."""

    chain: tuple[str, ...]
    """All operations of the way, from the first kernel to the second; the last one is ``operation``."""


class _Join(NamedTuple):
    seq: int
    clock: Mapping[int, int]
    source: Lane
    source_seq: int
    why: Why


class JoinLog:
    """The newest joins of each lane."""

    def __init__(self) -> None:
        self._joins: dict[int, deque[_Join]] = {}

    def note(self, lane: Lane, record: Record, why: Why) -> None:
        """Remember that ``lane`` has just learned ``record``, through the operation ``why``."""
        joins = self._joins.get(lane.id)
        if joins is None:
            joins = self._joins[lane.id] = deque(maxlen=_REMEMBERED_A_LANE)
        joins.append(_Join(lane.seq, lane.clock, record.lane, record.seq, why))

    def explain(self, first: tuple[Lane, int], second: tuple[Lane, int]) -> Ordering:
        """Say what orders ``first`` before ``second``, each given as its lane and count. They must be ordered."""
        (source, count), (lane, seq) = first, second
        if lane is source:
            text = f"stream order on '{lane.name}'"
            return Ordering("stream", text, (text,))
        kind: OrderKind | None = None
        chain: list[str] = []
        # Each hop goes to what its join had learned before, so the way back is finite.
        while lane is not source:
            join = self._earliest(lane, seq, source.id, count)
            if join is None:
                chain.append("an operation that is no longer remembered")
                kind = kind or "forgotten"
                break
            if join.why[0] == "host":
                # The stream got it from the host: the operation to name is the synchronisation, next on the way.
                kind = kind or "host"
            else:
                kind = kind or ("host" if lane.id == 0 else join.why[0])
                chain.append(_words(join, lane))
            lane, seq = join.source, join.source_seq
        chain.reverse()
        return Ordering(kind or "forgotten", chain[-1], tuple(chain))

    def _earliest(self, lane: Lane, seq: int, source: int, count: int) -> _Join | None:
        """Return the first join through which ``lane``, up to ``seq``, knew ``source`` up to ``count``."""
        joins = self._joins.get(lane.id, ())
        for place, join in enumerate(joins):
            if join.seq > seq:
                return None
            if join.clock.get(source, 0) >= count:
                # At the front of a full log, an older join may have taught it: then this one is not the answer.
                full = place == 0 and len(joins) == _REMEMBERED_A_LANE
                return None if full else join
        return None


def _words(join: _Join, lane: Lane) -> str:
    kind, event = join.why
    source = join.source.name
    what = f"event '{event}'" if event else "an event"
    if lane.id == 0:
        record = f"{what} recorded on '{source}'" if kind == "event" else f"'{source}'"
        return f"host synchronisation with {record}"
    if kind == "wait_stream":
        return f"wait_stream('{source}') on '{lane.name}'"
    if kind == "graph":
        return f"order of replays: '{event}' on '{lane.name}' after its last on '{source}'"
    if kind == "fork":
        return f"edge inside graph '{event}' from '{source}' to '{lane.name}'"
    return f"wait on '{lane.name}' for {what} recorded on '{source}'"
