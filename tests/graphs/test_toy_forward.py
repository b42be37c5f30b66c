"""Full and breakable graphs over a toy forward: order, markers, and what crosses a break."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from sglang_fence.device.simulated.costs import CostTable
from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.fence.events import Marker
from sglang_fence.graphs.breakable import BreakableGraph
from sglang_fence.graphs.full import FullGraph
from sglang_fence.graphs.parts import Part, launch_all

if TYPE_CHECKING:
    from collections.abc import Callable

KINDS = (FullGraph, BreakableGraph)


class Toy:
    """Parts that write down their names; which of them break is said by a capital letter."""

    def __init__(self, letters: str) -> None:
        self.device = SimulatedDevice(CostTable(default_us=10))
        self.ran: list[str] = []
        self.planted: Marker | None = None
        self.parts = [
            Part(self._launch(letter, first=not place), letter.isupper()) for place, letter in enumerate(letters)
        ]

    def _launch(self, letter: str, *, first: bool) -> Callable[[], None]:
        def launch() -> None:
            self.device.launch(letter, lambda: self.ran.append(letter))
            if first:
                self.planted = Marker.plant(self.device)

        return launch

    def after(self, run: Callable[[], None]) -> str:
        self.device.synchronize()
        self.ran.clear()
        run()
        self.device.synchronize()
        return "".join(self.ran)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("letters", ["a", "abc", "aBc", "abCdEf", "aBCd", "aB"])
def test_a_replay_runs_the_parts_in_the_order_of_the_eager_forward(
    letters: str, kind: type[FullGraph | BreakableGraph]
) -> None:
    toy = Toy(letters)
    graph = kind(toy.device, "toy", toy.parts, lambda: toy.planted)
    assert toy.after(graph.replay) == toy.after(graph.replay) == letters
    assert toy.after(lambda: launch_all(toy.parts)) == letters


@pytest.mark.parametrize(
    ("letters", "segments"), [("a", 1), ("abc", 1), ("aBc", 2), ("aBCd", 2), ("abCdEf", 3), ("aB", 1)]
)
def test_a_break_ends_a_segment_and_no_segment_is_empty(letters: str, segments: int) -> None:
    toy = Toy(letters)
    assert BreakableGraph(toy.device, "toy", toy.parts, lambda: toy.planted).segments == segments


@pytest.mark.parametrize("kind", KINDS)
def test_a_replay_arms_the_marker_which_is_reached_inside(kind: type[FullGraph | BreakableGraph]) -> None:
    toy = Toy("abCd")
    graph = kind(toy.device, "toy", toy.parts, lambda: toy.planted)
    marker = graph.in_graph_metadata_prep_done
    assert marker is not None
    toy.device.synchronize()
    before = toy.device.now_us
    armed = [marker.armed]
    graph.replay()
    assert [*armed, marker.armed] == [False, True]
    marker.event.synchronize()
    assert toy.device.now_us == before + 10.0
    toy.device.synchronize()
    assert toy.device.now_us == before + 40.0


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_planted_marker_there_is_none(kind: type[FullGraph | BreakableGraph]) -> None:
    toy = Toy("aBc")
    graph = kind(toy.device, "toy", toy.parts, lambda: None)
    graph.replay()
    assert graph.in_graph_metadata_prep_done is None


def test_a_marker_planted_in_a_later_segment_is_not_taken_for_the_graphs() -> None:
    toy = Toy("aBc")
    planted: list[Marker | None] = []
    for place in (0, 2):
        toy.parts[place] = Part(lambda: planted.append(Marker.plant(toy.device)))
    graph = BreakableGraph(toy.device, "toy", toy.parts, lambda: planted[-1])
    first, late = planted
    assert first is not late
    assert graph.in_graph_metadata_prep_done is first


def test_an_eager_part_computes_anew_at_each_replay() -> None:
    device = SimulatedDevice()
    static, seen = torch.zeros(1), []
    scale = [1.0]

    def double() -> None:
        device.launch("double", lambda: static.mul_(2))

    def eager() -> None:
        factor = scale[0]  # read by the host, at each replay
        device.launch("eager", lambda: static.mul_(factor))

    parts = [
        Part(double),
        Part(eager, breaks=True),
        Part(lambda: device.launch("keep", lambda: seen.append(float(static)))),
    ]
    graph = BreakableGraph(device, "toy", parts, lambda: None)
    device.synchronize()
    seen.clear()
    for factor in (3.0, 5.0):
        static.fill_(1.0)
        scale[0] = factor
        graph.replay()
        device.synchronize()
    assert seen == [6.0, 10.0]
