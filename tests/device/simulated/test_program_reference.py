"""Random programs agree with a naive reading of the rules: every op a node, order by closure, time by longest path."""

from __future__ import annotations

import json
import tempfile
from fractions import Fraction
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_fence.device.simulated.program import load_program, run_program

STREAMS = ("forward", "schedule", "plan")
BUFFERS = {"table": 3, "kv": 2}
EVENTS = ("e", "f", "m", "n")
Json = dict[str, Any]


class Naive:
    """The graph of all ops. A node is ordered after its predecessors; the host is one more chain."""

    def __init__(self) -> None:
        self.before: list[int] = []  # the ancestors of each node, as bits
        self.end: list[Fraction] = []
        self.accesses: list[tuple[int, str, Json, Json]] = []
        self.host = self.node((), 0)
        self.tails: dict[str, int] = {}
        self.events: dict[str, tuple[str, int]] = {}
        self.graph_ends: dict[str, int] = {}
        self.replays: dict[str, int] = {}
        self.names: list[str] = []

    def node(self, after: tuple[int | None, ...], us: float) -> int:
        known = [node for node in after if node is not None]
        bits = 0
        for node in known:
            bits |= self.before[node] | 1 << node
        self.before.append(bits)
        self.end.append(max((self.end[node] for node in known), default=Fraction(0)) + Fraction(str(us)))
        return len(self.end) - 1

    def on(self, stream: str, *after: int | None, us: float = 0) -> int:
        self.tails[stream] = self.node((self.tails.get(stream), self.host, *after), us)
        return self.tails[stream]

    def named(self, name: str) -> str:
        self.names.append(name)
        again = self.names.count(name) - 1
        return f"{name}#{again}" if again else name

    def touch(self, node: int, label: str, op: Json) -> None:
        self.accesses.append((node, label, op.get("reads", {}), op.get("writes", {})))

    def replay(self, name: str, graph: list[Json], stream: str) -> None:
        number = self.replays.get(name, 0)
        self.replays[name] = number + 1
        self.on(stream, self.graph_ends.get(name))
        kernels: list[str] = []
        for entry in graph:
            if "record" in entry:
                self.events[entry["record"]] = (stream, self.on(stream))
                continue
            again = kernels.count(entry["kernel"])
            kernels.append(entry["kernel"])
            label = f"{name}[{number}]/{entry['kernel']}" + (f"#{again}" if again else "")
            self.touch(self.on(stream, us=entry.get("us", 0)), label, entry)
        self.graph_ends[name] = self.on(stream)

    def races(self) -> list[Json]:
        found: list[tuple[tuple[int, int, str, str], Json]] = []
        for j, (second, second_name, second_reads, second_writes) in enumerate(self.accesses):
            for i, (first, first_name, first_reads, first_writes) in enumerate(self.accesses[:j]):
                if self.before[second] >> first & 1:
                    continue
                pairs = {
                    "WAR": (first_reads, second_writes),
                    "RAW": (first_writes, second_reads),
                    "WAW": (first_writes, second_writes),
                }
                for kind, (ours, theirs) in pairs.items():
                    for buffer in BUFFERS:
                        rows = sorted(set(ours.get(buffer, [])) & set(theirs.get(buffer, [])))
                        race = {
                            "kind": kind,
                            "buffer": buffer,
                            "rows": rows,
                            "first": first_name,
                            "second": second_name,
                        }
                        if rows:
                            found.append(((i, j, kind, buffer), race))
        return [race for _key, race in sorted(found, key=lambda entry: entry[0])]


def naive_verdict(program: Json) -> Json:
    naive = Naive()
    noops: list[int] = []
    slack: dict[str, float] = {}
    for index, op in enumerate(program["host"]):
        naive.host = naive.node((naive.host,), op.get("host_us", 0))
        stream = op.get("on", "")
        if "launch" in op:
            naive.touch(naive.on(stream, us=op.get("us", 0)), naive.named(op["launch"]), op)
        elif "replay" in op:
            naive.replay(op["replay"], program["graphs"][op["replay"]], stream)
        elif "record" in op:
            naive.events[op["record"]] = (stream, naive.on(stream))
        elif "wait" in op and op["wait"] not in naive.events:
            noops.append(index)
        elif "wait" in op:
            awaited, record = naive.events[op["wait"]]
            slack[str(index)] = float(naive.end[naive.tails[awaited]] - naive.end[record])
            naive.on(stream, record)
        elif "wait_stream" in op:
            slack[str(index)] = 0.0
            naive.on(stream, naive.tails.get(op["wait_stream"]))
        elif "synchronize" in op:
            record_or_none = naive.events.get(op["synchronize"], (None, None))[1]
            naive.host = naive.node((naive.host, record_or_none), 0)
        elif "synchronize_stream" in op:
            naive.host = naive.node((naive.host, naive.tails.get(op["synchronize_stream"])), 0)
        else:
            naive.host = naive.node((naive.host,), op.get("us", 0))
            naive.touch(naive.host, naive.named(op["host"]), op)
    return {"races": naive.races(), "noop_waits": noops, "slack_us": slack}


times = st.sampled_from([0, 1, 2.5, 0.3, 10, 40])
streams = st.sampled_from(STREAMS)
events = st.sampled_from(EVENTS)
rows = st.fixed_dictionaries(
    {},
    optional={name: st.lists(st.integers(0, count - 1), max_size=2) for name, count in BUFFERS.items()},
)
busy: Json = {"us": times, "reads": rows, "writes": rows}
kernels = st.sampled_from(["gather", "layer"])
nodes = st.fixed_dictionaries({"kernel": kernels}, optional=busy) | st.fixed_dictionaries({"record": events})
late: Json = {"host_us": times}
launches = st.fixed_dictionaries(
    {"launch": st.sampled_from(["assign", "fill"]), "on": streams},
    optional=late | busy,
)
ops = st.one_of(
    launches,
    launches,
    st.fixed_dictionaries({"replay": st.sampled_from(["a", "b"]), "on": streams}, optional=late),
    st.fixed_dictionaries({"record": events, "on": streams}, optional=late),
    st.fixed_dictionaries({"wait": events, "on": streams}, optional=late),
    st.fixed_dictionaries({"wait_stream": streams, "on": streams}, optional=late),
    st.fixed_dictionaries({"synchronize": events}, optional=late),
    st.fixed_dictionaries({"synchronize_stream": streams}, optional=late),
    st.fixed_dictionaries({"host": st.sampled_from(["fill", "peek"])}, optional=late | busy),
)
programs = st.fixed_dictionaries(
    {
        "name": st.just("random"),
        "about": st.just("made up"),
        "buffers": st.just(BUFFERS),
        "external_events": st.just(list(EVENTS)),
        "graphs": st.fixed_dictionaries({"a": st.lists(nodes, max_size=4), "b": st.lists(nodes, max_size=4)}),
        "host": st.lists(ops, max_size=24),
    },
)


def verdict_of(program: Json) -> Json:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.json"
        path.write_text(json.dumps(program), encoding="utf-8")
        return run_program(load_program(path)).to_json()


@settings(max_examples=300, deadline=None)
@given(programs)
def test_random_programs_agree_with_the_naive_reading(program: Json) -> None:
    assert verdict_of(program) == naive_verdict(program)


def test_the_naive_reading_finds_a_race_and_an_order() -> None:
    """The reference must be able to say both, or agreement would mean little."""
    read: Json = {"launch": "gather", "on": "forward", "us": 5, "reads": {"table": [0]}}
    write: Json = {"launch": "assign", "on": "schedule", "writes": {"table": [0, 1]}}
    program: Json = {"graphs": {}, "host": [read, write, {"wait_stream": "schedule", "on": "forward"}, read]}
    assert naive_verdict(program)["races"] == [
        {"kind": "WAR", "buffer": "table", "rows": [0], "first": "gather", "second": "assign"},
    ]
