"""R9: a marker belongs to one captured graph, and to have it means that the graph holds its node."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.device.simulated.graphs import RecordNode, SimulatedGraph
from sglang_fence.device.simulated.streams import SimulatedEvent
from sglang_fence.fence.events import Marker, make_external_event

if TYPE_CHECKING:
    from sglang_fence.device.protocol import Stream
    from tests.fence.conftest import Serve


class NodelessEvent(SimulatedEvent):
    """Can be made, and can't be recorded in a capture."""

    def record(self, stream: Stream | None = None) -> None:
        if self.external:
            msg = "external event nodes aren't supported"
            raise RuntimeError(msg)
        super().record(stream)


class Device(SimulatedDevice):
    """Keeps its graphs and its external events, with whether each was made while a stream captured."""

    def __init__(self, *, nodes: bool = True) -> None:
        super().__init__()
        self.nodes = nodes
        self.graphs: list[SimulatedGraph] = []
        self.made: list[tuple[SimulatedEvent, bool]] = []

    def Event(self, *, enable_timing: bool = False, external: bool = False) -> SimulatedEvent:  # noqa: N802 - protocol's
        kind = SimulatedEvent if self.nodes else NodelessEvent
        event = kind(self._core, timed=enable_timing, external=external)
        if external:
            self.made.append((event, self.is_current_stream_capturing()))
        return event

    def Graph(self, name: str) -> SimulatedGraph:  # noqa: N802 - protocol's
        graph = super().Graph(name)
        self.graphs.append(graph)
        return graph

    def recorded_in(self) -> dict[str, list[SimulatedEvent]]:
        """Each graph's event nodes."""
        return {
            graph.name: [node.event for node in graph.nodes or () if isinstance(node, RecordNode)]
            for graph in self.graphs
        }


def test_outside_of_a_capture_nothing_is_planted_and_no_event_made() -> None:
    device = Device()
    assert Marker.plant(device) is None
    assert device.made == []


def test_in_a_capture_the_marker_is_a_node_of_that_graph_and_not_armed() -> None:
    device = Device()
    with device.capture(device.Graph("decode")):
        marker = Marker.plant(device)
    assert marker is not None
    assert device.recorded_in() == {"decode": [marker.event]}
    assert not marker.armed


def test_a_device_without_external_events_has_no_marker() -> None:
    device = SimulatedDevice(external_events=False)
    assert make_external_event(device) is None
    with device.capture(device.Graph("decode")):
        assert Marker.plant(device) is None


def test_a_first_record_that_fails_leaves_no_marker() -> None:
    device = Device(nodes=False)
    with device.capture(device.Graph("decode")):
        assert Marker.plant(device) is None
    assert device.recorded_in() == {"decode": []}


@pytest.mark.parametrize("graph", ["full", "breakable"])
def test_each_decode_graph_has_one_of_its_own_and_warm_up_plants_none(graph: str, serve: Serve) -> None:
    device = Device()
    run = serve(device, graph=graph)
    markers = [captured.in_graph_metadata_prep_done for captured, _ in run.engine.decode._graphs.values()]
    events = [marker.event for marker in markers if marker is not None]
    assert len(events) == len(markers) == len(set(map(id, events)))
    assert {id(event) for event, _ in device.made} == set(map(id, events))
    assert all(capturing for _, capturing in device.made)
    assert len([event for recorded in device.recorded_in().values() for event in recorded]) == len(events)


def test_a_breakable_graphs_marker_lies_in_its_first_segment(serve: Serve) -> None:
    device = Device()
    run = serve(device, graph="breakable")
    recorded = device.recorded_in()
    for size, (captured, _) in run.engine.decode._graphs.items():
        marker = captured.in_graph_metadata_prep_done
        assert marker is not None
        segments = {name: events for name, events in recorded.items() if name.startswith(f"decode_bs{size}.")}
        assert len(segments) > 1
        assert {name for name, events in segments.items() if events} == {f"decode_bs{size}.0"}
        assert segments[f"decode_bs{size}.0"] == [marker.event]


@pytest.mark.parametrize("graph", ["full", "breakable"])
@pytest.mark.parametrize(
    "device", [SimulatedDevice(external_events=False), Device(nodes=False)], ids=["type", "record"]
)
def test_without_markers_decode_is_post_replay_and_each_step_a_counted_downgrade(
    device: SimulatedDevice,
    graph: str,
    serve: Serve,
) -> None:
    run = serve(device, graph=graph)
    assert all(captured.in_graph_metadata_prep_done is None for captured, _ in run.engine.decode._graphs.values())
    decodes = run.decodes
    assert decodes.steps
    assert decodes.declared == {"IN_REPLAY": decodes.steps}
    assert decodes.resolved == {"POST_REPLAY": decodes.steps}
    assert decodes.downgrades == {"no_marker": decodes.steps}
    assert decodes.fence == {"fine": decodes.steps}
    assert run.hazards == []


def test_with_markers_decode_is_in_replay_and_nothing_is_downgraded(serve: Serve) -> None:
    decodes = serve().decodes
    assert decodes.resolved == {"IN_REPLAY": decodes.steps}
    assert not decodes.downgrades
