"""``Packets``: a Perfetto trace, packet by packet. Knows the format and nothing of when what is drawn.

Nothing in it depends on the machine, the process or the time of day, so that the same calls give the same bytes.
Words that repeat are interned: written once, then named by a number. Only words of the catalogue are, so their number
is bounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb  # type: ignore[import-untyped] # no py.typed
from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder  # type: ignore[import-untyped] # the same

from sglang_fence.catalogue import SCOPE, Track, attribute

if TYPE_CHECKING:
    from sglang_fence_exporters.perfetto_slices import Slice, Value

SEQUENCE = 1

ROOT_NAME = "sglang-fence"
ROOT_UUID = 1
"""The track above all others. It isn't declared as a process: that would need a process number, which differs from run
to run, and the order of tracks below it would be the viewer's."""

TRACK_NAMES: dict[Track, str] = {
    Track.STEP: "step",
    Track.HOST: "host",
    Track.FORWARD: "forward stream",
    Track.SCHEDULE: "schedule stream",
}
"""Tracks of slices, from top to bottom."""

OBSERVER_NAME = "observer"
OBSERVER_UUID = 2
"""The track below those of slices: what was measured, each as a counter."""

COUNTERS: tuple[str, ...] = tuple(attribute(f"{SCOPE}.{name}").name for name in ("slack", "wait", "lost"))
"""Attributes that are drawn as counters, in µs."""

_TRACK_UUIDS = {track: 16 + index for index, track in enumerate(TRACK_NAMES)}
_COUNTER_UUIDS = {name: 32 + index for index, name in enumerate(COUNTERS)}
_UUIDS_A_LANE = 64

_CLEARED: int = pb.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
_NEEDS_STATE: int = pb.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE


def track_uuid(track: Track, lane: int) -> int:
    """Return the number of a track's lane; lane 0 is the track as it is without overlaps."""
    return _TRACK_UUIDS[track] + _UUIDS_A_LANE * lane


class Packets:
    """Writes packets to ``stream``, each as soon as it is made. Any OSError of the stream is let through."""

    def __init__(self, stream: BinaryIO) -> None:
        self._builder: Any = StreamingTraceProtoBuilder(stream)
        self._interned: dict[tuple[str, str], int] = {}

    def header(self, at_ns: int | None) -> None:
        """Write what comes first: the clock and all tracks, empty ones too.

        Args:
            at_ns: a time of the trace, since the Unix epoch. The trace's clock is then tied to the wall clock, which it
                equals. None: there is no time yet, and none is said.
        """
        packet = self._packet(_CLEARED)
        if at_ns is not None:
            for clock in (pb.BUILTIN_CLOCK_BOOTTIME, pb.BUILTIN_CLOCK_REALTIME):
                packet.clock_snapshot.clocks.add(clock_id=clock, timestamp=at_ns)
        self._builder.write_packet(packet)
        self._declare(ROOT_UUID, ROOT_NAME, 0, None)
        for rank, track in enumerate(TRACK_NAMES):
            self._declare(track_uuid(track, 0), TRACK_NAMES[track], rank)
        self._declare(OBSERVER_UUID, OBSERVER_NAME, len(TRACK_NAMES))
        for rank, name in enumerate(COUNTERS):
            descriptor = self._descriptor(_COUNTER_UUIDS[name], name.removeprefix(f"{SCOPE}."), rank, OBSERVER_UUID)
            descriptor.track_descriptor.counter.unit_name = "µs"
            self._builder.write_packet(descriptor)

    def lane(self, track: Track, lane: int) -> None:
        """Declare one more lane of ``track``, for slices that would overlap. Viewers draw lanes of one name as one."""
        self._declare(track_uuid(track, lane), TRACK_NAMES[track], list(TRACK_NAMES).index(track))

    def begin(self, uuid: int, one: Slice) -> None:
        """Write the start of a slice, or the whole of a mark."""
        kind = pb.TrackEvent.TYPE_INSTANT if one.mark else pb.TrackEvent.TYPE_SLICE_BEGIN
        packet, event = self._event(uuid, one.start_ns, kind)
        event.name_iid = self._intern(packet, "event_names", one.name)
        event.category_iids.append(self._intern(packet, "event_categories", one.category.value))
        for detail, value in one.details:
            self._annotate(packet, detail.name, value, closed=detail.values is not None)
        event.flow_ids.extend(one.leaving)
        event.terminating_flow_ids.extend(one.arriving)
        self._builder.write_packet(packet)

    def end(self, uuid: int, one: Slice) -> None:
        """Write the end of a slice."""
        packet, _ = self._event(uuid, one.end_ns, pb.TrackEvent.TYPE_SLICE_END)
        self._builder.write_packet(packet)

    def count(self, name: str, at_ns: int, us: float) -> None:
        """Write a value of the counter called ``name``."""
        packet, event = self._event(_COUNTER_UUIDS[name], at_ns, pb.TrackEvent.TYPE_COUNTER)
        event.double_counter_value = us
        self._builder.write_packet(packet)

    def _packet(self, flags: int) -> Any:  # noqa: ANN401 - a message; its package has no types
        packet = self._builder.create_packet()
        packet.trusted_packet_sequence_id = SEQUENCE
        packet.sequence_flags = flags
        return packet

    def _event(self, uuid: int, at_ns: int, kind: int) -> tuple[Any, Any]:
        packet = self._packet(_NEEDS_STATE)
        packet.timestamp = at_ns
        event = packet.track_event
        event.type = kind
        event.track_uuid = uuid
        return packet, event

    def _declare(self, uuid: int, name: str, rank: int, parent: int | None = ROOT_UUID) -> None:
        self._builder.write_packet(self._descriptor(uuid, name, rank, parent))

    def _descriptor(self, uuid: int, name: str, rank: int, parent: int | None) -> Any:  # noqa: ANN401 - as above
        packet = self._packet(_NEEDS_STATE)
        descriptor = packet.track_descriptor
        descriptor.uuid = uuid
        if parent is not None:
            descriptor.parent_uuid = parent
        descriptor.name = name
        descriptor.sibling_order_rank = rank
        descriptor.child_ordering = pb.TrackDescriptor.EXPLICIT
        return packet

    def _annotate(self, packet: Any, name: str, value: Value, *, closed: bool) -> None:  # noqa: ANN401 - as above
        """Add a detail. Dots in its name become levels, as viewers would replace them otherwise."""
        entries = packet.track_event.debug_annotations
        *levels, leaf = name.split(".")
        for level in levels:
            iid = self._intern(packet, "debug_annotation_names", level)
            found = next((entry for entry in entries if entry.name_iid == iid), None)
            entries = (entries.add(name_iid=iid) if found is None else found).dict_entries
        entry = entries.add(name_iid=self._intern(packet, "debug_annotation_names", leaf))
        if isinstance(value, bool):
            entry.bool_value = value
        elif isinstance(value, int):
            entry.int_value = value
        elif isinstance(value, float):
            entry.double_value = value
        elif closed:
            entry.string_value_iid = self._intern(packet, "debug_annotation_string_values", value)
        else:
            entry.string_value = value

    def _intern(self, packet: Any, kind: str, word: str) -> int:  # noqa: ANN401 - as above
        """Return the number of ``word``; the first packet that uses it says what it stands for."""
        iid = self._interned.get((kind, word))
        if iid is None:
            iid = self._interned[kind, word] = len(self._interned) + 1
            row = getattr(packet.interned_data, kind).add(iid=iid)
            if kind == "debug_annotation_string_values":
                row.str = word.encode()
            else:
                row.name = word
        return iid
