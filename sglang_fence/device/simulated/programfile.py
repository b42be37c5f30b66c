"""Reads stream programs: everything in a file is checked, and refused with its place and what to write."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, cast, get_args

from sglang_fence.device.simulated.programmodel import HostOp, KernelNode, Operation, Program, RecordNode
from sglang_fence.device.simulated.strictjson import closest, read_object, show, time_problem
from sglang_fence.device.simulated.timeline import to_ps
from sglang_fence.errors import ProgramError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from sglang_fence.device.simulated.programmodel import Touches

Json = dict[str, object]

_OPERATIONS: tuple[Operation, ...] = get_args(Operation)
_BUSY = {"us", "reads", "writes"}
_KEYS: dict[Operation, set[str]] = {
    "launch": {"on", *_BUSY},
    "replay": {"on"},
    "record": {"on"},
    "wait": {"on"},
    "wait_stream": {"on"},
    "synchronize": set(),
    "synchronize_stream": set(),
    "host": _BUSY,
}
_TOP = {"name", "about", "buffers", "external_events", "graphs", "host", "expect"}


def load_program(path: Path | str) -> Program:
    """Read the stream program in ``path``. ``host`` is the one key that a program must have.

    Raises:
        ProgramError: the file can't be read, or isn't a stream program; one line with the place and the mend.
    """
    file = Path(path)
    return _Reader(file, read_object(file, ProgramError)).program()


class _Reader:
    """Reads one file; places are given as ``host[3].reads.req_to_token[0]``."""

    def __init__(self, path: Path, top: Json) -> None:
        self._path = path
        self._top = top
        self._buffers: dict[str, int] = {}
        self._events: set[str] = set()
        self._graphs: dict[str, tuple[KernelNode | RecordNode, ...]] = {}

    def program(self) -> Program:
        top = self._top
        self._known_keys("", top, _TOP)
        self._needed("", top, "host")
        name = self._text("name", top.get("name", self._path.stem))
        about = self._text("about", top["about"]) if "about" in top else ""
        self._buffers = self._read_buffers()
        events = self._list("external_events", top.get("external_events", []))
        external = [self._text(f"external_events[{i}]", event) for i, event in enumerate(events)]
        self._events = set(external)
        for graph, nodes in self._object("graphs", top.get("graphs", {})).items():
            place = _key("graphs", graph)
            entries = enumerate(self._list(place, nodes))
            self._graphs[graph] = tuple(self._node(f"{place}[{i}]", node, external) for i, node in entries)
        ops = [self._object(f"host[{i}]", op) for i, op in enumerate(self._list("host", top["host"]))]
        # Events may be recorded later in the file than they are waited for: such a wait is a no-op, not an error.
        self._events.update(event for op in ops if isinstance(event := op.get("record"), str))
        host = tuple(self._op(f"host[{i}]", op) for i, op in enumerate(ops))
        return Program(name, about, self._buffers, self._graphs, host, self._expect())

    def _read_buffers(self) -> dict[str, int]:
        buffers: dict[str, int] = {}
        for name, rows in self._object("buffers", self._top.get("buffers", {})).items():
            if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1:
                self._refuse(_key("buffers", name), f"is {show(rows)}; write its number of rows, 1 or more")
            buffers[name] = rows
        return buffers

    def _node(self, place: str, value: object, external: Collection[str]) -> KernelNode | RecordNode:
        node = self._object(place, value)
        if self._operation(place, node, ("kernel", "record")) == "record":
            self._known_keys(place, node, {"record"})
            event = self._text(f"{place}.record", node["record"])
            if event not in external:
                self._refuse(f"{place}.record", f"{event!r} isn't in external_events; add it, or {_among(external)}")
            return RecordNode(event)
        self._known_keys(place, node, {"kernel", *_BUSY})
        return KernelNode(
            kernel=self._text(f"{place}.kernel", node["kernel"]),
            cost=self._time(place, node, "us"),
            reads=self._touches(place, node, "reads"),
            writes=self._touches(place, node, "writes"),
        )

    def _op(self, place: str, op: Json) -> HostOp:
        kind = cast("Operation", self._operation(place, op, _OPERATIONS))
        self._known_keys(place, op, {kind, "host_us", *_KEYS[kind]})
        subject = self._text(f"{place}.{kind}", op[kind])
        if kind == "replay" and subject not in self._graphs:
            self._refuse(f"{place}.replay", f"no graph {subject!r}; {closest(subject, self._graphs)}")
        if kind in {"wait", "synchronize"} and subject not in self._events:
            self._refuse(f"{place}.{kind}", f"nothing declares or records an event {subject!r}; {_among(self._events)}")
        on = ""
        if "on" in _KEYS[kind]:
            self._needed(place, op, "on")
            on = self._text(f"{place}.on", op["on"])
        return HostOp(
            kind=kind,
            subject=subject,
            on=on,
            host_cost=self._time(place, op, "host_us"),
            cost=self._time(place, op, "us"),
            reads=self._touches(place, op, "reads"),
            writes=self._touches(place, op, "writes"),
        )

    def _touches(self, place: str, table: Mapping[str, object], key: str) -> Touches:
        touches: list[tuple[str, tuple[int, ...]]] = []
        for name, value in self._object(f"{place}.{key}", table.get(key, {})).items():
            inner = _key(f"{place}.{key}", name)
            if name not in self._buffers:
                self._refuse(inner, f'no buffer of that name in "buffers"; {closest(name, self._buffers)}')
            count = self._buffers[name]
            rows: list[int] = []
            for i, row in enumerate(self._list(inner, value)):
                if isinstance(row, bool) or not isinstance(row, int):
                    self._refuse(f"{inner}[{i}]", f"is {show(row)}; write the number of a row")
                if not 0 <= row < count:
                    self._refuse(f"{inner}[{i}]", f"is {show(row)}; {name!r} has {count} rows, write 0 to {count - 1}")
                rows.append(row)
            touches.append((name, tuple(rows)))
        return tuple(touches)

    def _expect(self) -> Json | None:
        if "expect" not in self._top:
            return None
        expect = self._object("expect", self._top["expect"])
        self._known_keys("expect", expect, {"races", "noop_waits", "slack_us"})
        for i, race in enumerate(self._list("expect.races", expect.get("races", []))):
            self._object(f"expect.races[{i}]", race)
        for i, index in enumerate(self._list("expect.noop_waits", expect.get("noop_waits", []))):
            if isinstance(index, bool) or not isinstance(index, int):
                self._refuse(f"expect.noop_waits[{i}]", f"is {show(index)}; write the index of an op in host")
        for index, us in self._object("expect.slack_us", expect.get("slack_us", {})).items():
            if isinstance(us, bool) or not isinstance(us, int | float):
                self._refuse(_key("expect.slack_us", index), f"is {show(us)}; write a number of microseconds")
        return expect

    def _operation(self, place: str, table: Json, kinds: tuple[str, ...]) -> str:
        present = [kind for kind in kinds if kind in table]
        if len(present) != 1:
            found = f"has {' and '.join(present)}" if present else "has no operation"
            self._refuse(place, f"{found}; write exactly one of {', '.join(kinds)}")
        return present[0]

    def _known_keys(self, place: str, table: Json, known: set[str]) -> None:
        for key in table:
            if key not in known:
                self._refuse(_key(place, key), f"unknown key; {closest(key, known)}")

    def _needed(self, place: str, table: Json, key: str) -> None:
        if key not in table:
            what = {"on": "the name of a stream", "host": "the list of what the host does"}[key]
            self._refuse(_key(place, key), f"is missing; write {what}")

    def _time(self, place: str, table: Json, key: str) -> int:
        us = table.get(key, 0)
        problem = time_problem(us)
        if problem is not None:
            self._refuse(f"{place}.{key}", problem)
        return to_ps(cast("float", us))

    def _text(self, place: str, value: object) -> str:
        if not isinstance(value, str) or not value:
            self._refuse(place, f"is {show(value)}; write a name in quotes")
        return value

    def _list(self, place: str, value: object) -> list[object]:
        if not isinstance(value, list):
            self._refuse(place, f"is {show(value)}; write a list, […]")
        return cast("list[object]", value)

    def _object(self, place: str, value: object) -> Json:
        if not isinstance(value, dict):
            self._refuse(place, f"is {show(value)}; write an object, {{…}}")
        return cast("Json", value)

    def _refuse(self, place: str, problem: str) -> NoReturn:
        msg = f"{self._path}: {place}: {problem}"
        raise ProgramError(msg)


def _key(place: str, key: str) -> str:
    return f"{place}.{key}" if place else key


def _among(names: Collection[str]) -> str:
    return f"one of {', '.join(sorted(names))}" if names else "there are none"
