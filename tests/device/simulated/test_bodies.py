"""Bodies take effect at the end of their kernel's interval: torn reads, their order, and what they may touch."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from sglang_fence.device.buffers import SharedBuffer
from sglang_fence.device.simulated.costs import CostTable
from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.errors import InternalError, UndeclaredAccessError


def nothing() -> None:
    """Compute nothing."""


def read_beside_a_write(*, gather_us: float, assign_us: float, fenced: bool) -> tuple[int, int]:
    """Gather on one stream and overwrite on the other; return what was gathered, and how many hazards there were."""
    device = SimulatedDevice(CostTable(kernels={"gather": gather_us, "assign": assign_us}))
    forward, schedule, done = device.Stream("forward"), device.Stream("schedule"), device.Event()
    table = SharedBuffer(device, "table", torch.tensor([1]))
    gathered = torch.zeros(1, dtype=torch.long)
    with device.stream(forward):
        device.launch("gather", lambda: gathered.copy_(table.tensor), reads=[(table, [0])])
        done.record()
    if fenced:
        schedule.wait_event(done)
    with device.stream(schedule):
        device.launch("assign", lambda: table.tensor.fill_(2), writes=[(table, [0])])
    device.synchronize()
    assert table.tensor.item() == 2
    return int(gathered.item()), len(device.hazards)


def test_a_late_reader_sees_the_value_that_was_written_over_it() -> None:
    assert read_beside_a_write(gather_us=10, assign_us=3, fenced=False) == (2, 1)


def test_a_lucky_reader_is_a_hazard_all_the_same() -> None:
    assert read_beside_a_write(gather_us=3, assign_us=10, fenced=False) == (1, 1)


def test_a_fence_gives_the_right_value_whatever_the_costs() -> None:
    assert read_beside_a_write(gather_us=10, assign_us=3, fenced=True) == (1, 0)
    assert read_beside_a_write(gather_us=10, assign_us=0, fenced=True) == (1, 0)


def test_bodies_run_by_the_end_of_their_kernels_then_by_enqueueing() -> None:
    device = SimulatedDevice(CostTable(kernels={"long": 30, "short": 10}))
    ran: list[str] = []
    for stream, kernel in (("a", "long"), ("b", "short"), ("c", "short"), ("b", "short")):
        with device.stream(device.Stream(f"{stream} {kernel}")):
            device.launch(kernel, partial(ran.append, f"{stream} {kernel}"))
    device.synchronize()
    assert ran == ["b short", "c short", "b short", "a long"]


def test_a_synchronisation_runs_what_has_ended_by_then_and_no_more() -> None:
    device = SimulatedDevice(CostTable(kernels={"long": 30, "short": 10}, host={"work": 50}))
    ran: list[str] = []
    one, two = device.Stream("one"), device.Stream("two")
    with device.stream(one):
        device.launch("long", lambda: ran.append("long"))
    with device.stream(two):
        device.launch("short", lambda: ran.append("short"))
    two.synchronize()
    assert ran == ["short"]
    device.host("work")
    assert ran == ["short"]
    assert device.Event().query()
    event = device.Event()
    event.record(two)
    assert event.query()
    assert ran == ["short", "long"]


def test_a_query_that_is_false_runs_nothing() -> None:
    device = SimulatedDevice(CostTable(kernels={"short": 10}))
    ran: list[str] = []
    device.launch("short", lambda: ran.append("short"))
    event = device.Event()
    event.record()
    assert not event.query()
    assert ran == []


def test_a_body_may_touch_only_what_its_launch_declared() -> None:
    device = SimulatedDevice()
    table, kv = (SharedBuffer(device, name, torch.zeros(2)) for name in ("table", "kv"))
    device.launch("gather", lambda: kv.tensor.sum().item(), reads=[(table, [0])])
    with pytest.raises(UndeclaredAccessError, match="kernel 'gather' touched 'kv' without declaring it"):
        device.synchronize()
    # The host may touch buffers, and the device goes on.
    assert kv.tensor.sum() == 0
    device.launch("gather", lambda: (kv.tensor.sum(), table.tensor.sum()), reads=[(table, [0])], writes=[(kv, [1])])
    device.synchronize()


def test_the_declaration_of_a_graphs_node_holds_at_each_replay() -> None:
    device = SimulatedDevice()
    table, graph = SharedBuffer(device, "table", torch.zeros(2)), device.Graph("decode")
    with device.capture(graph):
        device.launch("gather", lambda: table.tensor.sum().item())
    graph.replay()
    with pytest.raises(UndeclaredAccessError, match="'table'"):
        device.synchronize()


def test_a_body_that_raises_is_not_run_again() -> None:
    device = SimulatedDevice()
    ran: list[str] = []

    def fail() -> None:
        ran.append("fail")
        raise KeyError

    device.launch("gather", fail)
    device.launch("layer", lambda: ran.append("layer"))
    with pytest.raises(KeyError):
        device.synchronize()
    device.synchronize()
    assert ran == ["fail", "layer"]


def test_a_body_must_not_call_the_device() -> None:
    device = SimulatedDevice()
    device.launch("gather", lambda: device.launch("layer", nothing))
    with pytest.raises(InternalError, match="body of kernel 'gather' called the device"):
        device.synchronize()
