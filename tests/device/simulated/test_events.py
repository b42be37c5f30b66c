"""Streams and events of the simulated device: CUDA's binding, exact times, and what the host learns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from sglang_fence.device.simulated.costs import CostTable
from sglang_fence.device.simulated.device import SimulatedDevice

if TYPE_CHECKING:
    from sglang_fence.device.protocol import DeviceModule

COSTS = CostTable(kernels={"short": 10, "long": 100, "odd": 0.1}, host={"work": 7})


def nothing() -> None:
    """Compute nothing."""


def make(*, external_events: bool = True) -> SimulatedDevice:
    return SimulatedDevice(COSTS, external_events=external_events)


def test_it_is_a_device_module() -> None:
    device: DeviceModule = make()
    assert device.name == "simulated"
    assert device.torch_device == torch.device("cpu")
    assert device.asynchronous
    assert device.current_stream().name == "default"


def test_stream_names_are_unique_and_the_current_stream_is_restored() -> None:
    device = make()
    one, two = device.Stream("forward"), device.Stream("forward", priority=-1)
    assert (one.name, two.name) == ("forward", "forward_2")
    with device.stream(one):
        with device.stream(two):
            assert device.current_stream() is two
        with pytest.raises(KeyError), device.stream(two):
            raise KeyError
        assert device.current_stream() is one
    assert device.current_stream().name == "default"


def test_launches_take_no_host_time_and_synchronisation_takes_theirs() -> None:
    device = make()
    device.launch("long", nothing)
    device.launch("short", nothing)
    assert device.now_us == 0.0
    device.host("work")
    assert device.now_us == 7.0
    device.current_stream().synchronize()
    assert device.now_us == 110.0


def test_streams_run_side_by_side_and_the_device_waits_for_all() -> None:
    device = make()
    for name, kernel in (("a", "long"), ("b", "short")):
        with device.stream(device.Stream(name)):
            device.launch(kernel, nothing)
    device.synchronize()
    assert device.now_us == 100.0


def test_elapsed_time_is_exact_in_milliseconds() -> None:
    device = make()
    start, end = device.Event(enable_timing=True), device.Event(enable_timing=True)
    device.host("work")
    start.record()
    for _ in range(10):
        device.launch("odd", nothing)
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) == 0.001
    assert end.elapsed_time(start) == -0.001
    assert device.now_us == 8.0


def test_elapsed_time_needs_timing_a_record_and_completion() -> None:
    device = make()
    start, end, plain = device.Event(enable_timing=True), device.Event(enable_timing=True), device.Event()
    start.record()
    plain.record()
    with pytest.raises(RuntimeError, match="enable_timing"):
        start.elapsed_time(plain)
    with pytest.raises(RuntimeError, match="were recorded"):
        start.elapsed_time(end)
    device.launch("long", nothing)
    end.record()
    with pytest.raises(RuntimeError, match="isn't complete"):
        start.elapsed_time(end)


def test_query_compares_with_the_hosts_time_and_does_not_let_it_pass() -> None:
    device = make()
    event = device.Event()
    assert event.query()
    device.launch("short", nothing)
    event.record()
    device.host("work")
    assert not event.query()
    assert device.now_us == 7.0
    device.host("work")
    assert event.query()
    assert device.now_us == 14.0


def test_a_wait_keeps_the_record_that_was_newest_when_it_was_issued() -> None:
    device = make()
    forward, schedule = device.Stream("forward"), device.Stream("schedule")
    event, done = device.Event(), device.Event(enable_timing=True)
    start = device.Event(enable_timing=True)
    start.record(schedule)
    with device.stream(forward):
        device.launch("short", nothing)
        event.record()
        schedule.wait_event(event)
        device.launch("long", nothing)
        event.record()
    done.record(schedule)
    done.synchronize()
    assert start.elapsed_time(done) == 0.01


def test_waiting_for_an_event_without_a_record_changes_nothing() -> None:
    device = make()
    forward, schedule = device.Stream("forward"), device.Stream("schedule")
    with device.stream(forward):
        device.launch("long", nothing)
    schedule.wait_event(device.Event(external=True))
    schedule.synchronize()
    device.Event().synchronize()
    assert device.now_us == 0.0


def test_wait_stream_takes_the_waits_of_the_other_stream_along() -> None:
    device = make()
    copy, forward, schedule = (device.Stream(name) for name in ("copy", "forward", "schedule"))
    with device.stream(copy):
        device.launch("long", nothing)
    forward.wait_stream(copy)
    schedule.wait_stream(forward)
    schedule.synchronize()
    assert device.now_us == 100.0


def test_an_observer_stream_holds_back_nobody_else() -> None:
    def end_of_schedule(*, observed: bool) -> float:
        device = make()
        forward, schedule, observer = (device.Stream(name) for name in ("forward", "schedule", "observer"))
        event = device.Event()
        with device.stream(forward):
            device.launch("long", nothing)
            event.record()
        if observed:
            observer.wait_event(event)
            device.Event(enable_timing=True).record(observer)
        with device.stream(schedule):
            device.launch("short", nothing)
        schedule.synchronize()
        return device.now_us

    assert end_of_schedule(observed=True) == end_of_schedule(observed=False) == 10.0


def test_a_device_without_external_events_refuses_them_in_the_constructor() -> None:
    with pytest.raises(TypeError, match="external"):
        make(external_events=False).Event(external=True)
    assert make(external_events=False).Event().query()


def test_streams_and_events_of_another_device_are_refused() -> None:
    ours, theirs = make(), make()
    with pytest.raises(TypeError, match="no event of this"):
        ours.current_stream().wait_event(theirs.Event())
    with pytest.raises(TypeError, match="no stream of this"):
        ours.Event().record(theirs.current_stream())
    with pytest.raises(TypeError, match="no stream of this"):
        ours.current_stream().wait_stream(theirs.current_stream())
