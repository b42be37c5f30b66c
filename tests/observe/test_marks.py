"""``Marks``: the ranges of one step, whatever nests in what, up to as many as there is room for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_fence.device.simulated.costs import CostTable
from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.observe.clock import DeviceClock
from sglang_fence.observe.marks import MOST, ON_DEVICE, ON_HOST, Mark, Marks

if TYPE_CHECKING:
    from sglang_fence.device.simulated.streams import SimulatedEvent, SimulatedStream


@dataclass(frozen=True)
class Node:
    """A range, what takes time at its begin, and the ranges in it."""

    name: str
    host_us: int
    kernel_us: int
    inner: tuple[Node, ...] = ()


NODES: st.SearchStrategy[Node] = st.recursive(
    st.builds(Node, st.sampled_from(sorted(ON_DEVICE | ON_HOST)), st.integers(0, 9), st.integers(0, 9)),
    lambda inner: st.builds(
        Node,
        st.sampled_from(sorted(ON_DEVICE | ON_HOST)),
        st.integers(0, 9),
        st.integers(0, 9),
        st.lists(inner, max_size=4).map(tuple),
    ),
    max_leaves=40,
)
FOREST = st.lists(NODES, max_size=6)


class CountingDevice(SimulatedDevice):
    """Counts the timing events that it makes."""

    made = 0

    def timed_event(self) -> SimulatedEvent:
        self.made += 1
        return super().timed_event()


class Player:
    """Plays forests into marks, and writes down by itself what they should say."""

    def __init__(self) -> None:
        costs = {f"{count}": float(count) for count in range(10)}
        self.device = CountingDevice(CostTable(default_us=0, kernels=costs, host=costs), check_hazards=False)
        self.forward: SimulatedStream = self.device.Stream("forward")
        self.clock = DeviceClock(self.device, self.device.observer_stream("clock"), virtual=True)
        self.marks = Marks(self.device.host_ns, self.device)
        self.expected: list[Mark] = []
        self._forward_us = 0.0

    def play(self, forest: list[Node], *, timed: bool) -> None:
        self.marks.reset()
        self.expected.clear()
        if timed:
            self.marks.on(self.forward)
        for node in forest:
            self._play(node, 0, timed=timed)

    def read(self) -> list[Mark] | None:
        """Read the marks, times on the device to the ns: floats of ms are a little beside the µs that were meant."""
        found = self.marks.read(self.clock.read)
        if found is None:
            return None
        return [
            mark._replace(device_us=mark.device_us and (round(mark.device_us[0], 3), round(mark.device_us[1], 3)))
            for mark in found
        ]

    def _now(self) -> float:
        """When the forward stream is through with what it has, in µs."""
        return max(self._forward_us, self.device.now_us)

    def _play(self, node: Node, depth: int, *, timed: bool) -> None:
        device, phase = self.device, depth % 3
        start, start_us = device.host_ns(), self._now()
        place = self.marks.begin(node.name, phase)
        at = len(self.expected)
        fits = at < MOST
        assert (place >= 0) == fits
        if fits:
            self.expected.append(Mark(node.name, depth, phase, start, -1, None))
        device.host(str(node.host_us))
        with device.stream(self.forward):
            device.launch(str(node.kernel_us), lambda: None)
        self._forward_us = self._now() + node.kernel_us
        for one in node.inner:
            self._play(one, depth + fits, timed=timed)
        self.marks.end(place)
        if fits:
            on_device = (start_us, self._now()) if timed and node.name in ON_DEVICE else None
            self.expected[at] = self.expected[at]._replace(end_ns=device.host_ns(), device_us=on_device)


@given(forest=FOREST, timed=st.booleans())
def test_ranges_come_back_in_order_with_depth_and_times(forest: list[Node], *, timed: bool) -> None:
    player = Player()
    player.play(forest, timed=timed)
    player.device.synchronize()
    assert player.read() == player.expected


ONE_RANGE = st.builds(Node, st.sampled_from(["launch", "replay"]), st.integers(0, 9), st.integers(0, 9))


@given(st.lists(st.tuples(st.lists(ONE_RANGE, max_size=3), st.booleans(), st.integers(0, 2)), max_size=4))
def test_marks_that_are_used_again_say_nothing_of_before(steps: list[tuple[list[Node], bool, int]]) -> None:
    player = Player()
    for forest, timed, left_open in steps:
        player.play(forest, timed=timed)
        player.device.synchronize()
        assert player.read() == player.expected
        for _ in range(left_open):
            player.marks.begin("launch", 0)


def test_events_are_made_once() -> None:
    player = Player()
    forest = [Node("replay", 1, 1, (Node("segment", 1, 1),) * 5)] * 3
    player.play(forest, timed=True)
    made = player.device.made
    player.play(forest, timed=True)
    assert player.device.made == made


@pytest.mark.parametrize("extra", [0, 1, 30])
def test_what_there_is_no_room_for_is_counted_and_shifts_nothing(extra: int) -> None:
    player = Player()
    player.play([Node("replay", 1, 1, tuple(Node("segment", 1, 1) for _ in range(MOST - 1 + extra)))], timed=True)
    player.device.synchronize()
    found = player.read()
    assert found is not None
    assert found == player.expected
    assert (len(found), player.marks.lost) == (MOST, extra)
    assert found[0].device_us == (0.0, 1.0 + MOST + extra)  # the first kernel comes after a µs of the host


def test_nothing_is_read_until_all_of_it_is_there() -> None:
    player = Player()
    player.play([Node("replay", 0, 5), Node("segment", 0, 5)], timed=True)
    assert player.read() is None
    player.device.synchronize()
    assert player.read() == player.expected


def test_a_range_that_is_open_is_left_out() -> None:
    player = Player()
    player.marks.reset()
    player.marks.begin("launch", 0)
    inner = player.marks.begin("publish", 0)
    player.marks.end(inner)
    found = player.read()
    assert found is not None
    assert [(mark.name, mark.depth) for mark in found] == [("publish", 1)]


def test_a_range_that_is_over_is_added_as_it_was() -> None:
    player = Player()
    player.marks.reset()
    player.marks.add_host("schedule", 100, 350)
    assert player.read() == [Mark("schedule", 0, 0, 100, 350, None)]
