"""Graphs of the simulated device: nodes recorded in a capture, and the edges between its streams."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from sglang_fence.errors import CaptureError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sglang_fence.device.protocol import Rows
    from sglang_fence.device.simulated.core import Core
    from sglang_fence.device.simulated.streams import SimulatedEvent, SimulatedStream
    from sglang_fence.device.simulated.timeline import Lane, Record

DeclaredRows = tuple[int, "Rows"]
"""A buffer's id, and its rows as the launch declared them. Ids, so that nothing pending keeps a buffer alive."""


class LaunchNode(NamedTuple):
    """A kernel of a graph."""

    branch: int
    name: str
    ordinal: int
    cost: int
    body: Callable[[], object]
    reads: Sequence[DeclaredRows]
    writes: Sequence[DeclaredRows]


class RecordNode(NamedTuple):
    """The record of an external event: it binds at each replay."""

    branch: int
    event: SimulatedEvent


class MarkNode(NamedTuple):
    """The place on a branch from which an inner edge starts."""

    branch: int
    slot: int


class JoinNode(NamedTuple):
    """The place on a branch where an inner edge arrives."""

    branch: int
    slot: int


Node = LaunchNode | RecordNode | MarkNode | JoinNode


class Mark(NamedTuple):
    """What a non-external event recorded in a capture stands for: a place in that capture, and nothing outside."""

    capture: int
    graph: str
    slot: int
    knows: dict[int, int]


class SimulatedGraph:
    """Captured work. Its first branch is replayed on the current stream, the others on hidden ones of the graph."""

    def __init__(self, core: Core, name: str) -> None:
        self._core = core
        self.name = name
        self.nodes: tuple[Node, ...] | None = None
        """In the order of capture; None before a capture has ended well."""
        self.side_lanes: list[Lane] = []
        self.slots = 0
        self.replays = 0
        self.last: Record | None = None
        """The end of the newest replay: the next comes after it, whatever its stream."""

    def replay(self) -> None:
        """Enqueue the captured nodes on the current stream; external event nodes re-arm here.

        Raises:
            CaptureError: nothing was captured, or a capture is under way.
        """
        self._core.replay(self)

    def __repr__(self) -> str:
        return f"SimulatedGraph({self.name!r}, replays={self.replays})"


_capture_ids = count()


class Capture:
    """A capture under way: nodes so far, and what each of its streams knows of the others."""

    def __init__(self, graph: SimulatedGraph, origin: SimulatedStream) -> None:
        self.id = next(_capture_ids)
        self.graph = graph
        self._nodes: list[Node] = []
        self._streams = [origin]
        self._branches = {origin.lane.id: 0}
        self._knows: list[dict[int, int]] = [{0: 0}]
        self._names: dict[str, int] = {}
        self._slots = 0
        self._joined: set[int] = set()

    def owns(self, stream: SimulatedStream) -> bool:
        """Whether work on ``stream`` is being captured."""
        return stream.lane.id in self._branches

    def launch(
        self,
        stream: SimulatedStream,
        name: str,
        cost: int,
        body: Callable[[], object],
        reads: Sequence[DeclaredRows],
        writes: Sequence[DeclaredRows],
    ) -> None:
        """Add a kernel to the branch of ``stream``."""
        ordinal = self._names.get(name, 0)
        self._names[name] = ordinal + 1
        self._add(LaunchNode(self._branches[stream.lane.id], name, ordinal, cost, body, reads, writes))

    def record(self, stream: SimulatedStream, event: SimulatedEvent) -> None:
        """Add the record of an external event to the branch of ``stream``."""
        self._add(RecordNode(self._branches[stream.lane.id], event))

    def mark(self, stream: SimulatedStream) -> Mark:
        """Name the present end of the branch of ``stream``, for an inner edge that may start there."""
        branch = self._branches[stream.lane.id]
        slot = self._slots
        self._slots += 1
        self._nodes.append(MarkNode(branch, slot))
        return Mark(self.id, self.graph.name, slot, dict(self._knows[branch]))

    def join(self, stream: SimulatedStream, mark: Mark) -> None:
        """Hold the branch of ``stream`` behind ``mark``; a stream from outside comes into the capture by it."""
        branch = self._branches.get(stream.lane.id)
        if branch is None:
            branch = self._branches[stream.lane.id] = len(self._streams)
            self._streams.append(stream)
            self._knows.append({branch: 0})
        self._joined.add(mark.slot)
        self._nodes.append(JoinNode(branch, mark.slot))
        knows = self._knows[branch]
        for other, nodes in mark.knows.items():
            knows[other] = max(nodes, knows.get(other, 0))

    def finish(self) -> None:
        """Give the graph its nodes.

        Raises:
            CaptureError: a side stream has work that the origin didn't wait for.
        """
        origin = self._knows[0]
        loose = [
            stream.name
            for branch, stream in enumerate(self._streams)
            if self._knows[branch][branch] > origin.get(branch, 0)
        ]
        if loose:
            names = ", ".join(repr(name) for name in loose)
            msg = (
                f"capture of graph {self.graph.name!r} ended with unjoined work on {names}; "
                f"let {self._streams[0].name!r} wait for it inside the capture"
            )
            raise CaptureError(msg)
        # Marks that nobody waited for would only cost time at each replay.
        self.graph.nodes = tuple(
            node for node in self._nodes if not isinstance(node, MarkNode) or node.slot in self._joined
        )
        self.graph.slots = self._slots

    @property
    def side_names(self) -> list[str]:
        """The streams that joined the capture, in the order of their branches."""
        return [stream.name for stream in self._streams[1:]]

    def _add(self, node: LaunchNode | RecordNode) -> None:
        self._nodes.append(node)
        self._knows[node.branch][node.branch] += 1
