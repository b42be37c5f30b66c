"""Graphs of the simulated device: capture, replay, external events, forks and joins, and what a capture refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sglang_fence.device.simulated.costs import CostTable
from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.errors import CaptureError

if TYPE_CHECKING:
    from sglang_fence.device.simulated.graphs import SimulatedGraph

COSTS = CostTable(kernels={"short": 10, "long": 100})


def nothing() -> None:
    """Compute nothing."""


@pytest.fixture
def device() -> SimulatedDevice:
    return SimulatedDevice(COSTS)


def captured(device: SimulatedDevice, *kernels: str) -> SimulatedGraph:
    graph = device.Graph("decode")
    with device.capture(graph):
        for kernel in kernels:
            device.launch(kernel, nothing)
    return graph


def test_a_capture_runs_nothing_and_each_replay_runs_every_body(device: SimulatedDevice) -> None:
    graph, ran = device.Graph("decode"), list[str]()
    with device.capture(graph):
        assert device.is_current_stream_capturing()
        device.launch("long", lambda: ran.append("long"))
        device.launch("short", lambda: ran.append("short"))
    assert not device.is_current_stream_capturing()
    device.synchronize()
    assert (ran, device.now_us) == ([], 0.0)
    graph.replay()
    graph.replay()
    device.synchronize()
    assert ran == ["long", "short"] * 2
    assert device.now_us == 220.0


def test_an_external_event_binds_at_each_replay_and_not_at_the_capture(device: SimulatedDevice) -> None:
    schedule, graph, marker = device.Stream("schedule"), device.Graph("decode"), device.Event(external=True)
    with device.capture(graph):
        device.launch("short", nothing)
        marker.record()
        device.launch("long", nothing)
    assert marker.bound is None
    graph.replay()
    schedule.wait_event(marker)
    schedule.synchronize()
    assert device.now_us == 10.0
    graph.replay()
    assert not marker.query()
    marker.synchronize()
    assert device.now_us == 120.0


def test_replays_of_one_graph_follow_one_another_on_whatever_streams(device: SimulatedDevice) -> None:
    graph, other = captured(device, "long"), captured(device, "short")
    one, two = device.Stream("one"), device.Stream("two")
    with device.stream(one):
        graph.replay()
    with device.stream(two):
        other.replay()
        two.synchronize()
        assert device.now_us == 10.0
        graph.replay()
        two.synchronize()
    assert device.now_us == 200.0


def test_a_side_stream_forks_and_joins_inside_the_graph(device: SimulatedDevice) -> None:
    main, side = device.Stream("main"), device.Stream("side")
    graph, fork, join = device.Graph("decode"), device.Event(), device.Event()
    with device.stream(main), device.capture(graph):
        device.launch("short", nothing)
        fork.record()
        side.wait_event(fork)
        with device.stream(side):
            assert device.is_current_stream_capturing()
            device.launch("long", nothing)
            join.record()
        device.launch("short", nothing)
        main.wait_event(join)
        device.launch("short", nothing)
    with device.stream(main):
        graph.replay()
    side.synchronize()
    assert device.now_us == 0.0
    main.synchronize()
    assert device.now_us == 120.0


def test_wait_stream_forks_and_joins_as_well(device: SimulatedDevice) -> None:
    main, side, graph = device.current_stream(), device.Stream("side"), device.Graph("decode")
    with device.capture(graph):
        side.wait_stream(main)
        with device.stream(side):
            device.launch("long", nothing)
        main.wait_stream(side)
    graph.replay()
    main.synchronize()
    assert device.now_us == 100.0


def test_a_side_stream_that_is_left_unjoined_is_refused_and_the_graph_stays_empty(device: SimulatedDevice) -> None:
    main, side, graph = device.current_stream(), device.Stream("side"), device.Graph("decode")
    join = device.Event()
    with pytest.raises(CaptureError, match="unjoined work on 'side'"), device.capture(graph):  # noqa: PT012 - the block
        side.wait_stream(main)
        join.record(side)
        with device.stream(side):
            device.launch("short", nothing)
        main.wait_event(join)
    with pytest.raises(CaptureError, match="nothing to replay"):
        graph.replay()


def test_a_plain_event_recorded_in_a_capture_means_nothing_outside(device: SimulatedDevice) -> None:
    stream, event, graph = device.Stream("schedule"), device.Event(enable_timing=True), device.Graph("decode")
    with device.capture(graph):
        event.record()
    for use in (lambda: stream.wait_event(event), event.query, event.synchronize):
        with pytest.raises(CaptureError, match="recorded inside the capture of graph 'decode'"):
            use()
    with pytest.raises(RuntimeError, match="outside of a capture"):
        event.elapsed_time(event)
    with device.capture(device.Graph("other")), pytest.raises(CaptureError, match="graph 'decode'"):
        stream.wait_event(event)
    event.record()
    assert event.query()


def test_work_on_a_stream_apart_is_not_captured(device: SimulatedDevice) -> None:
    apart, graph = device.Stream("apart"), device.Graph("decode")
    event = device.Event()
    with device.capture(graph), device.stream(apart):
        assert not device.is_current_stream_capturing()
        device.launch("long", nothing)
        event.record()
    graph.replay()
    event.synchronize()
    assert device.now_us == 100.0


def test_a_captured_stream_cannot_wait_for_what_is_outside(device: SimulatedDevice) -> None:
    main, apart, event = device.current_stream(), device.Stream("apart"), device.Event()
    main.wait_event(event)
    event.record(apart)
    with device.capture(device.Graph("decode")):
        main.wait_event(device.Event())
        with pytest.raises(CaptureError, match="from outside of the capture"):
            main.wait_event(event)
        with pytest.raises(CaptureError, match="no part in the capture"):
            main.wait_stream(apart)


def test_what_a_capture_refuses(device: SimulatedDevice) -> None:
    done, event = captured(device, "short"), device.Event()
    refused = (
        done.replay,
        device.synchronize,
        device.current_stream().synchronize,
        event.synchronize,
        event.query,
        lambda: device.capture(device.Graph("inner")).__enter__(),
    )
    with device.capture(device.Graph("outer")):
        for call in refused:
            with pytest.raises(CaptureError, match="during the capture of graph 'outer'"):
                call()
        assert device.is_current_stream_capturing()
    with pytest.raises(CaptureError, match="captured before"), device.capture(done):
        pass


def test_a_block_that_raises_ends_the_capture_and_leaves_the_graph_empty(device: SimulatedDevice) -> None:
    graph = device.Graph("decode")
    with pytest.raises(KeyError), device.capture(graph):
        raise KeyError
    with pytest.raises(CaptureError, match="capture it first"):
        graph.replay()
    device.synchronize()
