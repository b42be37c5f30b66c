"""Reads a Perfetto trace as its trace processor does, and fails where that would count an error."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb  # type: ignore[import-untyped] # no py.typed


@dataclass
class DrawnSlice:
    """A slice or, with ``mark``, an instant."""

    track: str
    uuid: int
    name: str
    category: str
    start_ns: int
    details: dict[str, object]
    parent: DrawnSlice | None
    mark: bool
    end_ns: int = -1

    @property
    def where(self) -> tuple[str, str, int, int]:
        return (self.track, self.name, self.start_ns, self.end_ns)


@dataclass
class Arrow:
    """A flow: from a slice, and a time in it, to another."""

    source: DrawnSlice
    from_ns: int
    target: DrawnSlice | None = None
    to_ns: int = -1


@dataclass
class Decoded:
    """All that is in a trace."""

    names: dict[int, str] = field(default_factory=dict[int, str])
    parents: dict[int, int] = field(default_factory=dict[int, int])
    ranks: dict[int, int] = field(default_factory=dict[int, int])
    units: dict[int, str] = field(default_factory=dict[int, str])
    clocks: dict[int, int] = field(default_factory=dict[int, int])
    process: str = ""
    slices: list[DrawnSlice] = field(default_factory=list[DrawnSlice])
    arrows: dict[int, Arrow] = field(default_factory=dict[int, Arrow])
    counters: dict[str, list[tuple[int, float]]] = field(
        default_factory=lambda: defaultdict[str, list[tuple[int, float]]](list),
    )

    def on(self, track: str) -> list[DrawnSlice]:
        return [one for one in self.slices if one.track == track]


class _Words:
    """The interned words of a sequence, and what is said in them."""

    def __init__(self) -> None:
        self._words: dict[tuple[str, int], str] = {}

    def learn(self, interned: Any) -> None:  # noqa: ANN401 - a message; its package has no types
        for kind in ("event_names", "event_categories", "debug_annotation_names"):
            for row in getattr(interned, kind):
                assert (kind, row.iid) not in self._words
                self._words[kind, row.iid] = row.name
        for row in interned.debug_annotation_string_values:
            self._words["values", row.iid] = row.str.decode()

    def word(self, kind: str, iid: int) -> str:
        return self._words[kind, iid]

    def details(self, entries: Any, above: str = "") -> dict[str, object]:  # noqa: ANN401 - as above
        found: dict[str, object] = {}
        for entry in entries:
            name = above + self.word("debug_annotation_names", entry.name_iid)
            assert "." not in name.removeprefix(above)
            if entry.dict_entries:
                found |= self.details(entry.dict_entries, f"{name}.")
                continue
            kind: str = entry.WhichOneof("value")
            found[name] = (
                self.word("values", entry.string_value_iid) if kind == "string_value_iid" else getattr(entry, kind)
            )
        return found


def decode(content: bytes) -> Decoded:
    trace = pb.Trace()
    trace.ParseFromString(content)
    decoded = Decoded()
    words = _Words()
    events: list[Any] = []
    for index, packet in enumerate(trace.packet):
        assert packet.trusted_packet_sequence_id == 1
        cleared = pb.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        assert packet.sequence_flags == (pb.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE if index else cleared)
        words.learn(packet.interned_data)
        for clock in packet.clock_snapshot.clocks:
            decoded.clocks[clock.clock_id] = clock.timestamp
        if packet.HasField("track_descriptor"):
            _declare(decoded, packet.track_descriptor)
        if packet.HasField("track_event"):
            assert packet.track_event.track_uuid in decoded.names
            events.append(packet)
    # Events take effect in order of time, and at one time in the order of the file.
    stacks: dict[int, list[DrawnSlice]] = defaultdict(list)
    for packet in sorted(events, key=lambda one: one.timestamp):
        _apply(decoded, words, stacks[packet.track_event.track_uuid], packet)
    assert not any(stacks.values()), "slices that never end"
    assert all(arrow.target for arrow in decoded.arrows.values()), "arrows that lead nowhere"
    return decoded


def _declare(decoded: Decoded, descriptor: Any) -> None:  # noqa: ANN401 - as above
    assert descriptor.uuid not in decoded.names, "a track is declared twice"
    decoded.names[descriptor.uuid] = descriptor.name or descriptor.process.process_name
    decoded.parents[descriptor.uuid] = descriptor.parent_uuid
    decoded.ranks[descriptor.uuid] = descriptor.sibling_order_rank
    if descriptor.HasField("counter"):
        decoded.units[descriptor.uuid] = descriptor.counter.unit_name
    if descriptor.HasField("process"):
        decoded.process = descriptor.process.process_name


def _apply(decoded: Decoded, words: _Words, stack: list[DrawnSlice], packet: Any) -> None:  # noqa: ANN401 - as above
    event, now = packet.track_event, packet.timestamp
    track = decoded.names[event.track_uuid]
    if event.type == pb.TrackEvent.TYPE_COUNTER:
        decoded.counters[track].append((now, event.double_counter_value))
        return
    if event.type == pb.TrackEvent.TYPE_SLICE_END:
        one = stack.pop()
        one.end_ns = now
        assert one.parent is None or one.parent.end_ns == -1, "a slice outlives the one it is in"
    else:
        one = DrawnSlice(
            track=track,
            uuid=event.track_uuid,
            name=words.word("event_names", event.name_iid),
            category=words.word("event_categories", event.category_iids[0]),
            start_ns=now,
            details=words.details(event.debug_annotations),
            parent=stack[-1] if stack else None,
            mark=event.type == pb.TrackEvent.TYPE_INSTANT,
        )
        decoded.slices.append(one)
        if one.mark:
            one.end_ns = now
        else:
            stack.append(one)
    for arrow in event.flow_ids:
        assert arrow not in decoded.arrows, "an arrow begins twice"
        decoded.arrows[arrow] = Arrow(one, now)
    for arrow in event.terminating_flow_ids:
        assert decoded.arrows[arrow].target is None, "an arrow ends twice"
        decoded.arrows[arrow].target, decoded.arrows[arrow].to_ns = one, now
