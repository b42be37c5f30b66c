"""R10: between publishing an event and waiting for it, nobody records it again (and R6, in any order of calls)."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sglang_fence.contract import FallbackReason, FenceKind, ForwardMode, SharedReadEnds
from sglang_fence.device.buffers import SharedBuffer
from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.device.simulated.streams import SimulatedEvent, SimulatedStream
from sglang_fence.fence.barrier import FencePolicy, WarBarrier
from sglang_fence.fence.events import EventPool, Marker
from sglang_fence.fence.publication import Mailbox, Publisher, ReadDone
from sglang_fence.graphs.full import FullGraph
from sglang_fence.graphs.parts import Part
from sglang_fence.observe.observer import Observers
from sglang_fence.observe.probe import StepProbe

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sglang_fence.device.protocol import Event, Stream
    from sglang_fence.device.simulated.timeline import Record

DECODE = ForwardMode.DECODE
FINE = FencePolicy(enabled=True, forced_coarse=False, why="test")


def nothing() -> None:
    """Compute nothing."""


class WatchedStream(SimulatedStream):
    """Writes down what each wait bound to, and whether the pool thought the event to be free by then."""

    def __init__(self, device: SimulatedDevice, pool: EventPool) -> None:
        super().__init__(device._core, device._core.timeline.add_lane("schedule"))
        self.pool = pool
        self.waits: list[Record | str | None] = []

    def wait_event(self, event: Event) -> None:
        assert isinstance(event, SimulatedEvent)
        assert event not in self.pool._free
        self.waits.append(event.bound)
        super().wait_event(event)

    def wait_stream(self, stream: Stream) -> None:
        self.waits.append(stream.name)
        super().wait_stream(stream)


class Runner:
    """Publishes on a forward stream of its own; reads the table inside its graph, before the marker."""

    def __init__(
        self,
        device: SimulatedDevice,
        pool: EventPool,
        table: SharedBuffer,
        row: int,
        order: Iterator[int] | None = None,
    ) -> None:
        self.device = device
        self.stream = device.Stream("forward")
        self.mailbox = Mailbox(pool)
        self.publisher = Publisher(self.mailbox, pool, order)
        self.table, self.row = table, row
        self.planted: Marker | None = None
        with device.stream(self.stream):
            parts = [Part(self._gather), Part(lambda: device.launch("layer", nothing))]
            graph = FullGraph(device, "decode", parts, lambda: self.planted)
        self.graph = graph
        assert graph.in_graph_metadata_prep_done is not None
        self.marker = graph.in_graph_metadata_prep_done

    def _gather(self) -> None:
        self.device.launch("gather", nothing, reads=((self.table, (self.row,)),))
        self.planted = Marker.plant(self.device)

    def run(self, step: int, ends: SharedReadEnds) -> ReadDone:
        """Replay, and publish as if the reads ended at ``ends``."""
        with self.device.stream(self.stream):
            if ends is SharedReadEnds.PRE_REPLAY:
                done = self.publisher.pre_replay(step, DECODE)
                self.graph.replay()
                return done
            self.graph.replay()
            if ends is SharedReadEnds.IN_REPLAY:
                return self.publisher.in_replay(step, DECODE, self.marker)
            if ends is SharedReadEnds.POST_REPLAY:
                return self.publisher.post_replay(step, DECODE)
            return self.publisher.unknown(step, DECODE, FallbackReason.BACKEND_UNKNOWN)


class Reader:
    """Several runners, one of which owns the step."""

    def __init__(self, runners: list[Runner]) -> None:
        self.runners = runners
        self.owner = runners[0]

    @property
    def last_shared_read_mailbox(self) -> Mailbox:
        return self.owner.mailbox

    @property
    def mailboxes(self) -> Iterable[Mailbox]:
        return [runner.mailbox for runner in self.runners]

    def is_last_shared_read_phase(self, mode: ForwardMode) -> bool:
        return mode is DECODE


class Fence(RuleBasedStateMachine):
    """Two runners publish, and a barrier takes, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.device = SimulatedDevice()
        self.pool = EventPool(self.device)
        self.schedule = WatchedStream(self.device, self.pool)
        table = SharedBuffer(self.device, "table", torch.zeros(2))
        order = count()
        self.runners = [Runner(self.device, self.pool, table, row, order) for row in range(2)]
        self.reader = Reader(self.runners)
        self.barrier = WarBarrier(self.device, self.schedule, FINE, self.pool, StepProbe(Observers()))
        self.step = 0
        self.newest: dict[int, tuple[ReadDone, Record | None]] = {}

    @rule(index=st.integers(0, 1), ends=st.sampled_from(SharedReadEnds))
    def publish(self, index: int, ends: SharedReadEnds) -> None:
        done = self.runners[index].run(self.step, ends)
        assert self.runners[index].mailbox.peek() is done
        event = done.event
        assert event is None or isinstance(event, SimulatedEvent)
        self.newest[index] = (done, None if event is None else event.bound)

    @rule()
    def next_step(self) -> None:
        self.step += 1

    @rule(owner=st.integers(0, 1))
    def apply(self, owner: int) -> None:
        self.reader.owner = self.runners[owner]
        self.schedule.waits.clear()
        verdict = self.barrier.apply(self.step, self.reader, self.runners[owner].stream)
        done, bound = self.newest.get(owner, (None, None))
        assert verdict.done is done
        others = [other for index, (other, _) in self.newest.items() if index != owner]
        last = done is not None and not any(other.step == self.step and other.order > done.order for other in others)
        if done is not None and done.step == self.step and done.event is not None and last:
            assert verdict.kind is FenceKind.FINE
            assert bound is not None
            assert self.schedule.waits == [bound]
        else:
            assert verdict.kind is FenceKind.COARSE
            assert self.schedule.waits == [self.runners[owner].stream.name]
        self.newest.clear()

    @rule()
    def discard(self) -> None:
        self.barrier.discard(self.reader)
        self.newest.clear()

    @invariant()
    def a_mailbox_holds_the_newest_publication(self) -> None:
        found = {index: runner.mailbox.peek() for index, runner in enumerate(self.runners)}
        assert found == {index: self.newest.get(index, (None, None))[0] for index in range(2)}

    @invariant()
    def each_event_is_free_once_or_lent_once(self) -> None:
        markers = {id(runner.marker.event) for runner in self.runners}
        held = [id(done.event) for done, _ in self.newest.values() if done.event is not None]
        held = [event for event in held if event not in markers]
        free = [id(event) for event in self.pool._free]
        assert len({*held, *free}) == len(held) + len(free)
        assert self.pool.lent == len(held)
        assert len(held) + len(free) <= 3


TestFence = Fence.TestCase
TestFence.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


class HastyMailbox(Mailbox):
    """Gives the event back when it is taken, before the wait for it is issued."""

    def take(self) -> ReadDone | None:
        done = super().take()
        self._pool.give_back(None if done is None else done.event)
        return done


@pytest.mark.parametrize("hasty", [False, True])
def test_an_event_recorded_again_before_its_wait_is_a_hazard(*, hasty: bool) -> None:
    device = SimulatedDevice()
    pool = EventPool(device)
    schedule = device.Stream("schedule")
    table = SharedBuffer(device, "table", torch.zeros(2))
    one, two = (Runner(device, pool, table, row) for row in range(2))
    if hasty:
        one.publisher._mailbox = one.mailbox = HastyMailbox(pool)
    one.run(0, SharedReadEnds.POST_REPLAY)
    taken = one.mailbox.take()
    two.run(1, SharedReadEnds.PRE_REPLAY)
    assert taken is not None
    assert taken.event is not None
    schedule.wait_event(taken.event)
    with device.stream(schedule):
        device.launch("assign", nothing, writes=((table, (0,)),))
    found = [(hazard.kind, hazard.first, hazard.second) for hazard in device.hazards]
    assert found == ([("WAR", "decode[0]/gather", "assign")] if hasty else [])


def test_a_wait_issued_after_the_next_replay_binds_to_the_next_step() -> None:
    device = SimulatedDevice()
    pool = EventPool(device)
    runner = Runner(device, pool, SharedBuffer(device, "table", torch.zeros(2)), 0)
    late = WatchedStream(device, pool)
    done = runner.run(0, SharedReadEnds.IN_REPLAY)
    event = done.event
    assert isinstance(event, SimulatedEvent)
    own = event.bound
    runner.run(1, SharedReadEnds.IN_REPLAY)
    late.wait_event(event)
    assert late.waits != [own]
