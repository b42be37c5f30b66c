"""Events bind on the GPU as they do on the simulated device (R10)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import torch

    from sglang_fence.device.protocol import Event
    from tests.gpu.conftest import Opened


class Rig:
    """A graph that counts between two delays, with a marker right behind the count."""

    def __init__(self, opened: Opened) -> None:
        self.device = device = opened.device
        self.opened = opened
        self.forward, self.schedule = device.Stream("forward"), device.Stream("schedule")
        self.counter = opened.tensor(0.0)
        self.seen = opened.tensor(-1.0)
        self.marker = device.Event(external=True)
        self.graph = device.Graph("decode")
        with device.stream(self.forward), device.capture(self.graph):
            opened.delay()
            device.launch("count", lambda: self.counter.add_(1))
            self.marker.record()
            opened.delay()
        device.synchronize()
        self.counter.zero_()
        device.synchronize()

    def replay(self) -> Event:
        """Replay; the event says when all of it is done."""
        end = self.device.Event()
        with self.device.stream(self.forward):
            self.graph.replay()
            end.record()
        return end

    def look(self) -> float:
        """Read the counter on the schedule stream, behind its waits."""
        with self.device.stream(self.schedule):
            self.device.launch("look", lambda: self.seen.copy_(self.counter))
        self.schedule.synchronize()
        return value(self.seen)


def value(tensor: torch.Tensor) -> float:
    return float(tensor.cpu()[0])


@pytest.fixture
def rig(opened: Opened) -> Rig:
    """Capture the graph."""
    return Rig(opened)


def test_every_replay_arms_the_marker_anew_and_a_wait_ends_inside_the_graph(rig: Rig) -> None:
    for step in range(1, 4):
        end = rig.replay()
        rig.schedule.wait_event(rig.marker)
        assert rig.look() == step
        assert not end.query()
        end.synchronize()


def test_a_wait_keeps_its_replay_whatever_is_replayed_afterwards(rig: Rig) -> None:
    rig.replay()
    rig.schedule.wait_event(rig.marker)
    end = rig.replay()
    assert rig.look() == 1
    assert not end.query()
    rig.device.synchronize()


def test_a_late_wait_binds_to_the_newest_replay(rig: Rig) -> None:
    rig.replay()
    end = rig.replay()
    rig.schedule.wait_event(rig.marker)
    assert rig.look() == 2
    assert not end.query()
    rig.device.synchronize()


def test_waiting_for_a_marker_that_no_replay_recorded_is_a_no_op(rig: Rig) -> None:
    end = rig.device.Event()
    with rig.device.stream(rig.forward):
        rig.opened.delay()
        end.record()
    rig.schedule.wait_event(rig.marker)
    rig.schedule.wait_event(rig.device.Event())
    assert rig.look() == 0
    assert not end.query()
    rig.device.synchronize()


def test_a_plain_event_that_is_recorded_again_does_not_move_an_earlier_wait(rig: Rig) -> None:
    event = rig.device.Event()
    with rig.device.stream(rig.forward):
        event.record()
        rig.schedule.wait_event(event)
        rig.opened.delay()
        event.record()
    assert rig.look() == 0
    assert not event.query()
    rig.schedule.wait_event(event)
    rig.look()
    assert event.query()


def test_the_coarse_fence_waits_for_the_whole_replay(rig: Rig) -> None:
    end = rig.replay()
    rig.schedule.wait_stream(rig.forward)
    assert rig.look() == 1
    assert end.query()
