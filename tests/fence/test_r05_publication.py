"""R5: a publication has an event that was recorded, or a reason why there is none."""

from __future__ import annotations

import pytest

from sglang_fence.contract import FallbackReason, ForwardMode, SharedReadEnds
from sglang_fence.device.simulated.costs import CostTable
from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.device.simulated.streams import SimulatedEvent
from sglang_fence.errors import ContractError
from sglang_fence.fence.events import EventPool, Marker
from sglang_fence.fence.publication import Mailbox, Publisher, ReadDone
from sglang_fence.graphs.full import FullGraph
from sglang_fence.graphs.parts import Part

DECODE = ForwardMode.DECODE
REASON = FallbackReason.BACKEND_UNKNOWN


def nothing() -> None:
    """Compute nothing."""


class Rig:
    """A publisher on a device whose every kernel takes 10 µs."""

    def __init__(self) -> None:
        self.device = SimulatedDevice(CostTable(default_us=10))
        self.pool = EventPool(self.device)
        self.mailbox = Mailbox(self.pool)
        self.publisher = Publisher(self.mailbox, self.pool)
        self.planted: Marker | None = None
        parts = [Part(self._gather_and_mark), Part(lambda: self.device.launch("layer", nothing))]
        self.graph = FullGraph(self.device, "decode", parts, lambda: self.planted)
        marker = self.graph.in_graph_metadata_prep_done
        assert marker is not None
        self.marker = marker

    def _gather_and_mark(self) -> None:
        self.device.launch("gather", nothing)
        self.planted = Marker.plant(self.device)


@pytest.fixture
def rig() -> Rig:
    """Make one."""
    return Rig()


@pytest.mark.parametrize("ends", SharedReadEnds)
@pytest.mark.parametrize("with_event", [True, False])
@pytest.mark.parametrize("with_reason", [True, False])
def test_an_event_or_a_reason_and_never_both(ends: SharedReadEnds, *, with_event: bool, with_reason: bool) -> None:
    event = SimulatedDevice().Event() if with_event else None
    reason = REASON if with_reason else None
    unknown = ends is SharedReadEnds.UNKNOWN
    if (with_event, with_reason) == (not unknown, unknown):
        assert ReadDone(3, DECODE, ends, event, reason).ends is ends
    else:
        with pytest.raises(ContractError, match=f"step 3, decode: .*ends={ends.name}"):
            ReadDone(3, DECODE, ends, event, reason)


@pytest.mark.parametrize("ends", [SharedReadEnds.PRE_REPLAY, SharedReadEnds.POST_REPLAY])
def test_a_fresh_event_is_recorded_before_it_is_published(rig: Rig, ends: SharedReadEnds) -> None:
    rig.device.launch("load_batch", nothing)
    publish = rig.publisher.pre_replay if ends is SharedReadEnds.PRE_REPLAY else rig.publisher.post_replay
    done = publish(7, DECODE)
    assert (done.step, done.mode, done.ends, done.reason) == (7, DECODE, ends, None)
    assert rig.mailbox.peek() is done
    assert bound_us(done) == 10.0


def test_the_marker_itself_is_published_and_not_recorded_again(rig: Rig) -> None:
    rig.graph.replay()
    rig.device.launch("sample", nothing)
    done = rig.publisher.in_replay(7, DECODE, rig.marker)
    assert done.event is rig.marker.event
    assert bound_us(done) == 10.0
    assert rig.pool.lent == 0


def test_a_marker_that_was_never_recorded_is_not_handed_out(rig: Rig) -> None:
    done = rig.publisher.in_replay(7, DECODE, rig.marker)
    assert (done.ends, done.event, done.reason) == (SharedReadEnds.UNKNOWN, None, FallbackReason.UNRECORDED)
    assert rig.mailbox.peek() is done


def test_a_marker_is_not_handed_out_twice_for_one_replay(rig: Rig) -> None:
    rig.graph.replay()
    assert rig.publisher.in_replay(7, DECODE, rig.marker).reason is None
    assert rig.publisher.in_replay(8, DECODE, rig.marker).reason is FallbackReason.UNRECORDED
    rig.graph.replay()
    assert rig.publisher.in_replay(9, DECODE, rig.marker).reason is None


def test_unknown_is_published_with_its_reason_and_no_event(rig: Rig) -> None:
    done = rig.publisher.unknown(7, DECODE, FallbackReason.HOST_CACHE)
    assert (done.ends, done.event, done.reason) == (SharedReadEnds.UNKNOWN, None, FallbackReason.HOST_CACHE)
    assert rig.mailbox.peek() is done


def bound_us(done: ReadDone) -> float:
    assert isinstance(done.event, SimulatedEvent)
    assert done.event.bound is not None
    return done.event.bound.time / 1e6
