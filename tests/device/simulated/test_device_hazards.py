"""The checker on the device: names, steps, frees, bounds, and which operation orders what."""

from __future__ import annotations

import gc

import pytest
import torch

from sglang_fence.device.buffers import SharedBuffer
from sglang_fence.device.simulated.device import SimulatedDevice


def nothing() -> None:
    """Compute nothing."""


class Rig:
    """Two streams, a table that both touch, and a graph that gathers from it, then publishes a marker."""

    def __init__(self) -> None:
        self.device = SimulatedDevice()
        self.forward, self.schedule = self.device.Stream("forward"), self.device.Stream("schedule")
        self.table = SharedBuffer(self.device, "table", torch.zeros(8))
        self.rows: list[int] = [0]
        self.marker = self.device.Event(external=True)
        self.graph = self.device.Graph("decode")
        with self.device.stream(self.forward), self.device.capture(self.graph):
            self.device.launch("gather", nothing, reads=[(self.table, lambda: self.rows)])
            self.marker.record()
            self.device.launch("layer", nothing)

    def replay(self) -> None:
        with self.device.stream(self.forward):
            self.graph.replay()

    def assign(self, *rows: int) -> None:
        with self.device.stream(self.schedule):
            self.device.launch("assign", nothing, writes=[(self.table, rows)])


def test_a_hazard_says_who_where_when_and_what_is_missing() -> None:
    rig = Rig()
    for step in range(3):
        rig.device.set_step(step)
        rig.forward.wait_stream(rig.schedule)
        rig.replay()
        if step != 1:
            rig.schedule.wait_event(rig.marker)
        rig.device.set_step(step + 10)
        rig.assign(0, 3)
    (hazard,) = rig.device.hazards
    assert (hazard.kind, hazard.buffer, hazard.rows) == ("WAR", "table", (0,))
    assert (hazard.first, hazard.first_step, hazard.second, hazard.second_step) == (
        "decode[1]/gather",
        1,
        "assign#1",
        11,
    )
    assert hazard.missing == (
        "no event recorded on 'forward' after decode[1]/gather is waited for on 'schedule' before assign#1"
    )


def test_rows_given_as_a_function_are_asked_at_each_replay_and_kept() -> None:
    rig = Rig()
    rig.replay()
    rig.rows[:] = [5]
    rig.assign(5)
    assert rig.device.hazards == []
    rig.assign(0)
    assert [hazard.second for hazard in rig.device.hazards] == ["assign#1"]


@pytest.mark.parametrize("learn", ["synchronize", "query"])
def test_what_the_host_has_seen_done_comes_before_all_that_follows(learn: str) -> None:
    rig = Rig()
    rig.replay()
    event = rig.device.Event()
    event.record(rig.forward)
    for _ in range(5):
        rig.device.host("schedule")
    if learn == "query":
        assert event.query()
    else:
        event.synchronize()
    rig.assign(0)
    assert rig.device.hazards == []


def test_time_alone_orders_nothing() -> None:
    rig = Rig()
    rig.replay()
    for _ in range(5):
        rig.device.host("schedule")
    rig.assign(0)
    assert len(rig.device.hazards) == 1


def test_host_accesses_race_with_what_is_outstanding_alone() -> None:
    rig = Rig()
    rig.device.host_access("fill", writes=[(rig.table, [0])])
    rig.replay()
    rig.device.host_access("fill", writes=[(rig.table, [0])])
    (hazard,) = rig.device.hazards
    assert (hazard.first, hazard.second) == ("decode[0]/gather", "fill#1")
    assert hazard.missing.endswith("is waited for by the host before fill#1")


def step_buffer(rig: Rig) -> SharedBuffer:
    return SharedBuffer(rig.device, "packed", torch.zeros(2), owner=rig.schedule)


def use(rig: Rig, packed: SharedBuffer) -> None:
    rig.forward.wait_stream(rig.schedule)
    with rig.device.stream(rig.forward):
        rig.device.launch("load_batch", nothing, reads=[(packed, [0, 1])])


def test_a_buffer_dropped_before_its_reader_is_done_is_a_free_that_races() -> None:
    rig = Rig()
    packed = step_buffer(rig)
    use(rig, packed)
    del packed
    gc.collect()
    (hazard,) = rig.device.hazards
    assert (hazard.kind, hazard.buffer, hazard.rows) == ("WAR", "packed", (0, 1))
    assert (hazard.first, hazard.second) == ("load_batch", "free(packed)")


def test_a_buffer_held_until_its_reader_is_done_is_freed_in_order() -> None:
    rig = Rig()
    packed = step_buffer(rig)
    use(rig, packed)
    rig.forward.synchronize()
    del packed
    gc.collect()
    assert rig.device.hazards == []


def test_a_free_behind_a_wait_on_the_owners_stream_is_in_order() -> None:
    rig = Rig()
    packed = step_buffer(rig)
    use(rig, packed)
    rig.schedule.wait_stream(rig.forward)
    del packed
    gc.collect()
    assert rig.device.hazards == []


def test_a_free_in_a_body_or_a_capture_is_heard_afterwards() -> None:
    rig = Rig()
    held = [step_buffer(rig), step_buffer(rig)]
    use(rig, held[0])
    use(rig, held[1])
    with rig.device.stream(rig.schedule):
        rig.device.launch("assign", lambda: held.__delitem__(0))
    rig.schedule.synchronize()
    with rig.device.capture(rig.device.Graph("other")):
        held.clear()
        gc.collect()
        rig.device.host("launch")
        assert [hazard.second for hazard in rig.device.hazards] == ["free(packed)"]
    assert [hazard.second for hazard in rig.device.hazards] == ["free(packed)", "free(packed)#1"]


def test_stored_hazards_are_capped_and_counted_further() -> None:
    rig = Rig()
    rig.replay()
    for _ in range(1500):
        rig.assign(0)
    assert len(rig.device.hazards) == 1000
    assert rig.device.hazard_count == 1500


def test_a_long_run_that_the_host_follows_stays_small() -> None:
    rig = Rig()
    for _ in range(500):
        packed = step_buffer(rig)
        rig.assign(0)
        use(rig, packed)
        rig.replay()
        rig.schedule.wait_event(rig.marker)
        rig.forward.synchronize()
    checker = rig.device._core.checker
    assert checker is not None
    assert rig.device.hazards == []
    assert checker.outstanding < 200
    assert len(checker._buffers) < 10


def test_without_the_checker_nothing_is_reported_and_no_rows_are_asked() -> None:
    device = SimulatedDevice(check_hazards=False)
    table = SharedBuffer(device, "table", torch.zeros(2))
    device.launch("gather", nothing, reads=[(table, lambda: pytest.fail("asked"))])
    device.host_access("fill", writes=[(table, [0])])
    device.freed(table.id, device.current_stream())
    device.synchronize()
    assert (device.hazards, device.hazard_count) == ([], 0)
    with pytest.raises(ValueError, match="check_hazards"):
        device.explain_order("gather", "fill")


def operation(rig: Rig, first: str, second: str) -> tuple[str, str] | None:
    ordering = rig.device.explain_order(first, second)
    return None if ordering is None else (ordering.kind, ordering.operation)


def test_an_order_is_explained_by_the_operation_that_made_it() -> None:
    rig = Rig()
    rig.replay()
    rig.schedule.wait_event(rig.marker)
    rig.assign(0)
    assert operation(rig, "decode[0]/gather", "assign") == (
        "event",
        "wait on 'schedule' for an event recorded on 'forward'",
    )
    assert operation(rig, "decode[0]/layer", "assign") is None
    assert operation(rig, "assign", "decode[0]/gather") is None
    rig.schedule.wait_stream(rig.forward)
    rig.assign(0)
    assert operation(rig, "decode[0]/layer", "assign#1") == ("wait_stream", "wait_stream('forward') on 'schedule'")
    assert operation(rig, "decode[0]/gather", "decode[0]/layer") == ("stream", "stream order on 'forward'")
    with pytest.raises(ValueError, match="no kernel 'nobody'"):
        rig.device.explain_order("nobody", "assign")


def test_graph_order_and_host_synchronisation_are_explained() -> None:
    rig = Rig()
    rig.replay()
    with rig.device.stream(rig.device.Stream("other")):
        rig.graph.replay()
    kind_and_words = operation(rig, "decode[0]/layer", "decode[1]/gather")
    assert kind_and_words == ("graph", "order of replays: 'decode' on 'other' after its last on 'forward'")
    rig.forward.synchronize()
    rig.device.host_access("fill")
    rig.assign(0)
    assert operation(rig, "decode[0]/layer", "assign") == ("host", "host synchronisation with 'forward'")
    assert operation(rig, "fill", "assign") == ("host", "host order: assign was enqueued after fill")


def test_a_chain_names_every_operation_from_the_first_kernel_to_the_second() -> None:
    rig = Rig()
    plan = rig.device.Stream("plan")
    rig.replay()
    rig.schedule.wait_event(rig.marker)
    plan.wait_stream(rig.schedule)
    with rig.device.stream(plan):
        rig.device.launch("over_allocate", nothing, writes=[(rig.table, [0])])
    ordering = rig.device.explain_order("decode[0]/gather", "over_allocate")
    assert ordering is not None
    assert ordering.chain == (
        "wait on 'schedule' for an event recorded on 'forward'",
        "wait_stream('schedule') on 'plan'",
    )
    assert rig.device.hazards == []
