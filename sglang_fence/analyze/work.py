"""What ran on each stream, in the order in which the host enqueued it.

The tool gives every call of a process a rising correlation number, and what the call made the device do carries it. So
"enqueued before" is a comparison of two numbers, whatever the clocks say.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sglang_fence.analyze.tables import PROCESS_BITS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sglang_fence.analyze.capture import Capture
    from sglang_fence.analyze.graphs import GraphKey, GraphShape

StreamKey = tuple[int, int]
"""Process, and the tool's number of the stream."""

_MARKERS = "CREATE TEMP TABLE marker (pid INTEGER, graph INTEGER, node INTEGER, PRIMARY KEY (pid, graph)) WITHOUT ROWID"
# Grouped by the database: a replay of hundreds of nodes is one row here.
_WORK = """
    SELECT w.globalPid, w.streamId, w.correlationId, min(w.start), max(w.end), count(w.graphNodeId),
        max(w.graphNodeId >> 32), max(CASE WHEN w.graphNodeId & 4294967295 < m.node THEN w.end END),
        min(CASE WHEN w.graphNodeId & 4294967295 > m.node THEN w.start END), max(w.whole)
    FROM (SELECT globalPid, streamId, correlationId, start, end, graphNodeId, 0 AS whole FROM kernel
        UNION ALL SELECT globalPid, streamId, correlationId, start, end, graphNodeId, 0 FROM copy
        UNION ALL SELECT globalPid, streamId, correlationId, start, end, graphNodeId, 0 FROM fill
        UNION ALL SELECT globalPid, streamId, correlationId, start, end, NULL, 1 FROM whole_graph) AS w
    LEFT JOIN temp.marker m ON m.pid = w.globalPid AND m.graph = w.graphNodeId >> 32
    GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
"""
_LAUNCHES = """
    SELECT c.globalTid, c.correlationId, c.start FROM call c JOIN string s ON s.id = c.nameId
    WHERE s.value LIKE '%GraphLaunch%'
"""


@dataclass(frozen=True, slots=True)
class Replay:
    """One replay of a graph. Times are in ns of the capture's clock."""

    correlation: int
    graph: int | None
    """None where the nodes of graphs weren't traced."""

    nodes: int
    """That ran: event records aren't among them."""

    start: int
    end: int
    marker_after: int | None
    """When the last node before the marker ended."""

    marker_before: int | None
    """When the first node behind the marker began."""


@dataclass(slots=True)
class StreamWork:
    """All that ran on a stream. Grows by ``add`` in the order of enqueueing."""

    correlations: array[int] = field(default_factory=lambda: array("q"))
    starts: array[int] = field(default_factory=lambda: array("q"))
    done: array[int] = field(default_factory=lambda: array("q"))
    """When this and everything before it had ended."""

    replays: list[Replay] = field(default_factory=list)

    def add(self, correlation: int, start: int, end: int) -> None:
        """Append what one call made the stream do."""
        self.correlations.append(correlation)
        self.starts.append(start)
        self.done.append(max(end, self.done[-1]) if self.done else end)

    def done_before(self, correlation: int) -> int | None:
        """When all that was enqueued before the call had ended, in ns; None where there is nothing."""
        index = bisect_left(self.correlations, correlation)
        return self.done[index - 1] if index else None

    def first_after(self, correlation: int) -> int | None:
        """When the first thing that was enqueued after the call began, in ns; None where there is nothing."""
        index = bisect_right(self.correlations, correlation)
        return self.starts[index] if index < len(self.starts) else None

    def any_between(self, first: int, last: int) -> bool:
        """Whether something was enqueued after the one call and before the other."""
        return bisect_right(self.correlations, first) < bisect_left(self.correlations, last)

    def replays_between(self, first: int, last: int) -> tuple[Replay, ...]:
        """Return the replays that were launched after the one call and before the other."""
        low = bisect_right(self.replays, first, key=lambda replay: replay.correlation)
        return tuple(self.replays[low : bisect_left(self.replays, last, key=lambda replay: replay.correlation)])


def stream_work(capture: Capture, shapes: Mapping[GraphKey, GraphShape]) -> dict[StreamKey, StreamWork]:
    """Return what ran, by stream."""
    markers = ((*key, shape.marker) for key, shape in shapes.items() if shape.marker is not None)
    capture.execute(_MARKERS)
    capture.put("INSERT INTO temp.marker VALUES (?, ?, ?)", markers)
    streams: dict[StreamKey, StreamWork] = {}
    for process, stream, correlation, start, end, nodes, graph, after, before, whole in capture.rows(_WORK):
        work = streams.setdefault((process, stream), StreamWork())
        work.add(correlation, start, end)
        if graph is not None or whole:
            work.replays.append(Replay(correlation, graph, nodes, start, end, after, before))
    return streams


def launch_times(capture: Capture) -> dict[tuple[int, int], int]:
    """Return when the host launched each graph, in ns, by thread's process and correlation."""
    return {(thread & PROCESS_BITS, number): start for thread, number, start in capture.rows(_LAUNCHES)}
