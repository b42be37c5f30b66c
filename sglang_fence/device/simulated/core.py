"""What streams, events, graphs and the device share: time, order, pending bodies, the checker, a capture under way."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from sglang_fence.device.simulated.accesses import Op
from sglang_fence.device.simulated.bodies import Bodies
from sglang_fence.device.simulated.graphs import Capture, JoinNode, LaunchNode, RecordNode
from sglang_fence.device.simulated.hazards import HazardChecker
from sglang_fence.device.simulated.ordering import JoinLog
from sglang_fence.device.simulated.streams import SimulatedEvent, SimulatedStream
from sglang_fence.device.simulated.timeline import Timeline
from sglang_fence.errors import CaptureError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sglang_fence.device import protocol
    from sglang_fence.device.simulated.accesses import Touch
    from sglang_fence.device.simulated.graphs import DeclaredRows, SimulatedGraph
    from sglang_fence.device.simulated.ordering import Why
    from sglang_fence.device.simulated.timeline import Lane, Record


class Core:
    """The state of one simulated device."""

    def __init__(self, *, check_hazards: bool) -> None:
        joins = JoinLog() if check_hazards else None
        self.timeline = Timeline(joins)
        self.checker = HazardChecker(self.timeline, joins=joins) if check_hazards else None
        self.bodies = Bodies()
        self.capture: Capture | None = None
        self.step = -1
        self.current = SimulatedStream(self, self.timeline.add_lane("default"))
        self._appearances: dict[str, int] = {}
        self._order = 0
        self._freed: deque[tuple[int, protocol.Stream]] = deque()

    def begin(self) -> None:
        """Start a call to the device: hear what was freed since the last one.

        Frees come from finalizers, at any moment, in the middle of a call too. What the clocks say changes in calls
        alone, so a free heard at the start of the next call lands exactly where the host stood when it happened.

        Raises:
            InternalError: the call comes from within a kernel's body.
        """
        self.bodies.refuse_inside()
        if self._freed and self.capture is None:
            self._hear_freed()

    def freed(self, buffer_id: int, stream: protocol.Stream) -> None:
        """Take a free to the next call. Safe at any moment: it only appends."""
        if self.checker is not None:
            self._freed.append((buffer_id, stream))

    def appearance(self, name: str) -> int:
        """Count how often ``name`` was launched before."""
        ordinal = self._appearances.get(name, 0)
        self._appearances[name] = ordinal + 1
        return ordinal

    def enqueue(self, lane: Lane, prefix: str, ordinal: int, node: LaunchNode) -> None:
        """Enqueue a kernel: its time, its place in the order, its accesses, and its body for later."""
        checker = self.checker
        reads: Sequence[Touch] = ()
        writes: Sequence[Touch] = ()
        if checker is not None and (node.reads or node.writes):
            # Rows come first: what a caller's function raises leaves the device as it was.
            reads, writes = _resolve(node.reads), _resolve(node.writes)
        end = self.timeline.launch(lane, node.cost)
        self._order += 1
        declared = [buffer_id for buffer_id, _rows in (*node.reads, *node.writes)] if node.reads or node.writes else ()
        self.bodies.push(end, self._order, node.body, node.name, declared)
        if checker is not None:
            checker.enqueue(Op(lane, prefix, node.name, ordinal, self.step, self._order), reads, writes)

    def host_access(self, name: str, reads: Iterable[DeclaredRows], writes: Iterable[DeclaredRows]) -> None:
        """Take accesses of the host itself: after all that it has synchronised with, before what it enqueues next."""
        self._order += 1
        ordinal = self.appearance(name)
        if self.checker is not None:
            op = Op(self.timeline.host, "", name, ordinal, self.step, self._order)
            self.checker.enqueue(op, _resolve(reads), _resolve(writes))

    def synchronize(self, record: Record, why: Why) -> None:
        """Let the host wait for ``record``; then run the bodies that are due."""
        self.timeline.synchronize(record, why)
        self.bodies.run_until(self.timeline.now)

    def replay(self, graph: SimulatedGraph) -> None:
        """Enqueue a graph's nodes: the first branch on the current stream, the others on hidden ones."""
        self.begin()
        self.refuse_capture(f"replay of graph {graph.name!r}")
        if graph.nodes is None:
            msg = f"graph {graph.name!r} has nothing to replay; capture it first, and let the capture end"
            raise CaptureError(msg)
        timeline = self.timeline
        lane = self.current.lane
        prefix = f"{graph.name}[{graph.replays}]/"
        graph.replays += 1
        if graph.last is not None:
            timeline.wait(lane, graph.last, ("graph", graph.name))
        lanes = (lane, *graph.side_lanes)
        marks: list[Record | None] = [None] * graph.slots
        for node in graph.nodes:
            target = lanes[node.branch]
            if isinstance(node, LaunchNode):
                self.enqueue(target, prefix, node.ordinal, node)
            elif isinstance(node, RecordNode):
                node.event.bound = timeline.record(target)
            elif isinstance(node, JoinNode):
                mark = marks[node.slot]
                if mark is not None:
                    timeline.wait(target, mark, ("fork", graph.name))
            else:
                marks[node.slot] = timeline.record(target)
        graph.last = timeline.record(lane)

    def end_capture(self, capture: Capture) -> None:
        """Finish a capture whose block ended well."""
        capture.finish()
        graph = capture.graph
        graph.side_lanes = [self.timeline.add_lane(f"{graph.name}/{name}") for name in capture.side_names]

    def refuse_capture(self, call: str) -> None:
        """Refuse a call that a capture can't take.

        Raises:
            CaptureError: a capture is under way.
        """
        if self.capture is not None:
            msg = f"{call} during the capture of graph {self.capture.graph.name!r}; move it out of the capture"
            raise CaptureError(msg)

    def own_stream(self, stream: protocol.Stream) -> SimulatedStream:
        """Return ``stream`` as what it is.

        Raises:
            TypeError: it belongs to another device.
        """
        if isinstance(stream, SimulatedStream) and stream.belongs_to(self):
            return stream
        msg = f"{stream!r} is no stream of this simulated device"
        raise TypeError(msg)

    def own_event(self, event: protocol.Event) -> SimulatedEvent:
        """Return ``event`` as what it is.

        Raises:
            TypeError: it belongs to another device.
        """
        if isinstance(event, SimulatedEvent) and event.belongs_to(self):
            return event
        msg = f"{event!r} is no event of this simulated device"
        raise TypeError(msg)

    def _hear_freed(self) -> None:
        """Enqueue a free, a kernel without cost or body, on the owner's stream for each buffer that ended."""
        while self._freed:
            buffer_id, stream = self._freed.popleft()
            checker = self.checker
            name = None if checker is None else checker.buffer_name(buffer_id)
            if checker is None or name is None:
                continue
            lane = self.own_stream(stream).lane
            self.timeline.launch(lane, 0)
            self._order += 1
            free = f"free({name})"
            checker.free(Op(lane, "", free, self.appearance(free), self.step, self._order), buffer_id)


def _resolve(accesses: Iterable[DeclaredRows]) -> list[Touch]:
    """Ask for the rows, and copy those that their owner could change later."""
    touches: list[Touch] = []
    for buffer_id, declared in accesses:
        rows = declared() if callable(declared) else declared
        touches.append((buffer_id, rows if isinstance(rows, tuple | range) else tuple(rows)))
    return touches
