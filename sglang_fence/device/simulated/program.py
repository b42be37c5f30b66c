"""Stream programs: runs what a file says, and tells which accesses nothing orders and how the waits turned out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sglang_fence.device.simulated.accesses import Op
from sglang_fence.device.simulated.hazards import HazardChecker
from sglang_fence.device.simulated.ordering import JoinLog
from sglang_fence.device.simulated.programfile import load_program
from sglang_fence.device.simulated.programmodel import KernelNode, Program
from sglang_fence.device.simulated.timeline import Timeline, to_us

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from sglang_fence.device.simulated.accesses import Hazard, Touch
    from sglang_fence.device.simulated.programmodel import HostOp, Touches
    from sglang_fence.device.simulated.timeline import Lane, Record

__all__ = ["Program", "Verdict", "check_files", "load_program", "run_program"]

_EVERY_RACE = 1_000_000


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a program turned out to do."""

    races: tuple[Hazard, ...]
    """In the order of their first, then their second access, then kind, then buffer."""

    noop_waits: tuple[int, ...]
    """The ops that wait for an event which nothing had recorded."""

    slack_us: dict[int, float] = field(default_factory=dict[int, float])
    """Op → how much sooner than a wait for the whole stream it lets go, in µs, for every wait that was bound."""

    def to_json(self) -> dict[str, object]:
        """Return the verdict as a program's ``expect`` writes it, with the slack of every bound wait."""
        return {
            "races": [
                {"kind": race.kind, "buffer": race.buffer, "rows": list(race.rows)}
                | {"first": race.first, "second": race.second}
                for race in self.races
            ],
            "noop_waits": list(self.noop_waits),
            "slack_us": {str(index): slack for index, slack in self.slack_us.items()},
        }


def run_program(program: Program) -> Verdict:
    """Enqueue all that the program's host does, and check it."""
    return _Run(program).verdict()


def check_files(paths: Iterable[Path]) -> list[tuple[Path, Verdict]]:
    """Read and run several programs, in order.

    Raises:
        ProgramError: one of the files isn't a stream program. All are read before the first is run.
    """
    programs = [(path, load_program(path)) for path in paths]
    return [(path, run_program(program)) for path, program in programs]


class _Run:
    """One run of one program."""

    def __init__(self, program: Program) -> None:
        self._program = program
        joins = JoinLog()
        self._timeline = Timeline(joins)
        self._checker = HazardChecker(self._timeline, joins=joins, limit=_EVERY_RACE)
        self._buffer_ids = {name: number for number, name in enumerate(program.buffers)}
        for name, rows in program.buffers.items():
            self._checker.add_buffer(self._buffer_ids[name], name, rows)
        self._streams: dict[str, Lane] = {}
        self._events: dict[str, Record] = {}
        self._ends: dict[str, Record] = {}
        self._replays: dict[str, int] = {}
        self._appearances: dict[str, int] = {}
        self._order = 0
        self._noop_waits: list[int] = []
        self._slack_us: dict[int, float] = {}

    def verdict(self) -> Verdict:
        for index, op in enumerate(self._program.host):
            self._timeline.advance(op.host_cost)
            self._do(index, op)
        return Verdict(tuple(self._checker.hazards), tuple(self._noop_waits), self._slack_us)

    def _do(self, index: int, op: HostOp) -> None:
        timeline = self._timeline
        match op.kind:
            case "launch":
                lane = self._stream(op.on)
                timeline.launch(lane, op.cost)
                self._access(lane, "", op.subject, self._appearance(op.subject), op.reads, op.writes)
            case "host":
                timeline.advance(op.cost)
                self._access(timeline.host, "", op.subject, self._appearance(op.subject), op.reads, op.writes)
            case "replay":
                self._replay(op.subject, self._stream(op.on))
            case "record":
                self._events[op.subject] = timeline.record(self._stream(op.on))
            case "wait":
                self._wait(index, op.subject, self._stream(op.on))
            case "wait_stream":
                waiter, other = self._stream(op.on), self._stream(op.subject)
                timeline.wait(waiter, timeline.tail(other), ("wait_stream", None))
                self._slack_us[index] = 0.0
            case "synchronize":
                record = self._events.get(op.subject)
                if record is not None:
                    timeline.synchronize(record, ("event", op.subject))
            case "synchronize_stream":
                timeline.synchronize(timeline.tail(self._stream(op.subject)), ("wait_stream", None))

    def _wait(self, index: int, event: str, lane: Lane) -> None:
        record = self._events.get(event)
        if record is None:
            self._noop_waits.append(index)
            return
        self._slack_us[index] = to_us(record.lane.ready - record.time)
        self._timeline.wait(lane, record, ("event", event))

    def _replay(self, graph: str, lane: Lane) -> None:
        timeline = self._timeline
        number = self._replays.get(graph, 0)
        self._replays[graph] = number + 1
        if graph in self._ends:
            timeline.wait(lane, self._ends[graph], ("graph", graph))
        seen: dict[str, int] = {}
        for node in self._program.graphs[graph]:
            if isinstance(node, KernelNode):
                ordinal = seen.get(node.kernel, 0)
                seen[node.kernel] = ordinal + 1
                timeline.launch(lane, node.cost)
                self._access(lane, f"{graph}[{number}]/", node.kernel, ordinal, node.reads, node.writes)
            else:
                self._events[node.event] = timeline.record(lane)
        self._ends[graph] = timeline.record(lane)

    def _access(
        self,
        lane: Lane,
        prefix: str,
        name: str,
        ordinal: int,
        reads: Touches,
        writes: Touches,
    ) -> None:
        self._order += 1
        op = Op(lane, prefix, name, ordinal, -1, self._order)
        self._checker.enqueue(op, self._by_id(reads), self._by_id(writes))

    def _by_id(self, touches: Touches) -> list[Touch]:
        return [(self._buffer_ids[name], rows) for name, rows in touches]

    def _appearance(self, name: str) -> int:
        ordinal = self._appearances.get(name, 0)
        self._appearances[name] = ordinal + 1
        return ordinal

    def _stream(self, name: str) -> Lane:
        lane = self._streams.get(name)
        if lane is None:
            lane = self._streams[name] = self._timeline.add_lane(name)
        return lane
