"""Which nodes of a graph prepare metadata, and where its marker lies.

An event record is a node, but nothing runs for it: it is the gap in the numbers of the nodes that run. The tool numbers
nodes in the order of their capture, and a graph that is instantiated keeps the numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from sglang_fence.analyze.ranges import Moments
from sglang_fence.analyze.tables import PROCESS_BITS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sglang_fence.analyze.capture import Capture
    from sglang_fence.analyze.ranges import NamedRange

GraphKey = tuple[int, int]
"""Process, and the tool's number of the instantiated graph."""

_RUNNING_NODES = """
    SELECT DISTINCT globalPid, graphNodeId FROM (
        SELECT globalPid, graphNodeId FROM kernel WHERE graphNodeId IS NOT NULL
        UNION ALL SELECT globalPid, graphNodeId FROM copy WHERE graphNodeId IS NOT NULL
        UNION ALL SELECT globalPid, graphNodeId FROM fill WHERE graphNodeId IS NOT NULL)
"""
_CAPTURED_NODES = "SELECT start, globalTid, graphNodeId FROM node WHERE originalGraphNodeId IS NULL ORDER BY start"
_COPIED_NODES = """
    SELECT globalTid, graphNodeId, originalGraphNodeId FROM node WHERE originalGraphNodeId IS NOT NULL
"""


@dataclass(frozen=True, slots=True)
class GraphShape:
    """What is known of an instantiated graph."""

    gaps: tuple[int, ...]
    """Nodes for which nothing runs, such as event records, before the last that runs."""

    preparation: tuple[int, ...] | None
    """Nodes that prepare metadata, from our ranges at its capture; None where the capture doesn't show it."""

    @property
    def marker(self) -> int | None:
        """The node that records the end of shared reads: the first gap behind the preparation, or the first of all."""
        behind = max(self.preparation, default=-1) if self.preparation else -1
        return next((gap for gap in self.gaps if gap > behind), None)


def graph_shapes(capture: Capture, ranges: Sequence[NamedRange]) -> dict[GraphKey, GraphShape]:
    """Return the shape of each graph of which a node ran."""
    running: dict[GraphKey, list[int]] = {}
    for process, node in sorted(capture.rows(_RUNNING_NODES)):
        running.setdefault((process, node >> 32), []).append(node & 0xFFFFFFFF)
    prepared = _preparation(capture, ranges)
    return {key: GraphShape(_gaps(nodes), prepared.get(key)) for key, nodes in running.items()}


def _gaps(nodes: Sequence[int]) -> tuple[int, ...]:
    found = list(range(nodes[0]))
    for before, after in pairwise(nodes):
        found.extend(range(before + 1, after))
    return tuple(found)


def _preparation(capture: Capture, ranges: Sequence[NamedRange]) -> dict[GraphKey, tuple[int, ...]]:
    """Return the nodes captured inside our ranges, as numbered in the graphs that were made of them."""
    captured = [found for found in ranges if found.name == "capture"]
    if not captured:
        return {}
    captures = Moments(captured)
    # The warm-up before a capture runs the same preparation: only what lies in a capture makes nodes.
    inside = Moments(
        found for found in ranges if found.name == "in_graph_metadata" and captures.hold(found.thread, found.start)
    )
    named: set[GraphKey] = set()
    seen: set[GraphKey] = set()
    for start, thread, node in capture.rows(_CAPTURED_NODES):
        if captures.hold(thread, start):
            seen.add((thread & PROCESS_BITS, node))
            if inside.hold(thread, start):
                named.add((thread & PROCESS_BITS, node))
    made: dict[GraphKey, list[int]] = {}
    for thread, node, original in capture.rows(_COPIED_NODES):
        process = thread & PROCESS_BITS
        if (process, original) in seen:
            nodes = made.setdefault((process, node >> 32), [])
            if (process, original) in named:
                nodes.append(node & 0xFFFFFFFF)
    return {key: tuple(sorted(nodes)) for key, nodes in made.items()}
