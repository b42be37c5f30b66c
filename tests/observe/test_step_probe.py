"""``StepProbe``: preallocated records, bounded reads in order, and exact times on the simulated device."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

import pytest

from sglang_fence.contract import FallbackReason, FenceKind, ForwardMode, SharedReadEnds
from sglang_fence.device.simulated.costs import CostTable
from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.engine.observation import make_probe
from sglang_fence.observe.observer import Observer, Observers
from sglang_fence.observe.probe import IN_FLIGHT, StepProbe
from sglang_fence.observe.reading import DRAIN_LIMIT, FULL
from sglang_fence.observe.record import Phase
from sglang_fence.observe.sampling import Sampling

if TYPE_CHECKING:
    from sglang_fence.device.simulated.streams import SimulatedEvent
    from sglang_fence.observe.record import StepRecord


@dataclass(frozen=True)
class Verdict:
    """What a barrier decided."""

    kind: FenceKind = FenceKind.FINE
    reason: FallbackReason | None = None
    published: tuple[SharedReadEnds, int] | None = (SharedReadEnds.IN_REPLAY, 7)


@dataclass(frozen=True)
class Finished:
    """A finished record's numbers."""

    step: int
    fence: FenceKind
    slack_us: float | None
    wait_us: float | None


class Keeper(Observer):
    """Keeps finished steps, the records that carried them, and how often a run ended."""

    def __init__(self) -> None:
        self.finished: list[Finished] = []
        self.records: list[StepRecord] = []
        self.applied: list[int] = []
        self.runs = 0

    def barrier_applied(self, record: StepRecord) -> None:
        self.applied.append(record.step)

    def step_finished(self, record: StepRecord) -> None:
        self.finished.append(Finished(record.step, record.fence, record.slack_us, record.wait_us))
        self.records.append(record)

    def run_ended(self) -> None:
        self.runs += 1

    @property
    def steps(self) -> list[int]:
        return [one.step for one in self.finished]


class CountingDevice(SimulatedDevice):
    """Counts the timing events that it makes."""

    made = 0

    def timed_event(self) -> SimulatedEvent:
        self.made += 1
        return super().timed_event()


class Rig:
    """A probe with timers; a step reads for 10 µs and computes for 100 more."""

    def __init__(self) -> None:
        costs = CostTable(kernels={"read": 10, "compute": 100, "write": 25}, host={"barrier": 2})
        self.device = CountingDevice(costs)
        self.forward, self.schedule = self.device.Stream("forward"), self.device.Stream("schedule")
        self.keeper = Keeper()
        self.probe = make_probe(self.device, [self.keeper], Sampling(timing_every=1), self.forward, self.schedule)

    def step(self, step: int, kind: FenceKind = FenceKind.FINE) -> None:
        self.probe.step_started(step, ForwardMode.DECODE, "native", 1, 1)
        self.probe.forward_started(self.forward)
        event = self.device.Event()
        with self.device.stream(self.forward):
            self.device.launch("read", lambda: None)
            event.record()
            self.device.launch("compute", lambda: None)
        self.probe.launched()
        if kind is FenceKind.ABSENT:
            self.probe.no_barrier()
            return
        self.probe.reads_end(Verdict(kind), event if kind is FenceKind.FINE else None, self.forward)
        self.device.host("barrier")
        self.probe.before_wait()
        if kind is FenceKind.FINE:
            self.schedule.wait_event(event)
        elif kind is FenceKind.COARSE:
            self.schedule.wait_stream(self.forward)
        self.probe.after_wait(Verdict(kind))


@pytest.fixture
def rig() -> Rig:
    """Make one."""
    return Rig()


TIMES = {
    # R is at 10, F at 110, A at 2 on the device's clock.
    FenceKind.FINE: (100.0, 8.0),
    FenceKind.COARSE: (0.0, 108.0),
    FenceKind.DISABLED: (None, None),
    FenceKind.ABSENT: (None, None),
}


@pytest.mark.parametrize("kind", FenceKind)
def test_slack_and_wait_are_exact(kind: FenceKind, rig: Rig) -> None:
    rig.step(0, kind)
    rig.device.synchronize()
    rig.probe.idle()
    assert rig.keeper.finished == [Finished(0, kind, *TIMES[kind])]
    assert rig.keeper.applied == ([] if kind is FenceKind.ABSENT else [0])


@pytest.mark.parametrize("before", [[FenceKind.FINE], [FenceKind.COARSE], [FenceKind.FINE, FenceKind.COARSE]])
def test_forwards_that_raise_leave_records_for_those_that_follow(before: list[FenceKind]) -> None:
    rig, steps, served = Rig(), count(), list[int]()
    for _ in range(2 * IN_FLIGHT):
        for kind in before:
            served.append(next(steps))
            rig.step(served[-1], kind)
        rig.device.synchronize()
        rig.probe.step_started(next(steps), ForwardMode.DECODE, "native", 1, 1)
        rig.probe.forward_started(rig.forward)  # and it raises
    rig.device.synchronize()
    rig.probe.flush()
    assert rig.keeper.steps == served


def test_a_wait_that_was_over_before_it_began_is_zero(rig: Rig) -> None:
    with rig.device.stream(rig.schedule):
        rig.device.launch("write", lambda: None)
    rig.step(0)
    rig.device.synchronize()
    rig.probe.idle()
    assert rig.keeper.finished == [Finished(0, FenceKind.FINE, 100.0, 0.0)]


def test_the_moment_of_a_marker_is_its_own_though_the_next_step_records_it_again(rig: Rig) -> None:
    marker = rig.device.Event(external=True)
    graph = rig.device.Graph("decode")
    with rig.device.stream(rig.forward), rig.device.capture(graph):
        rig.device.launch("read", lambda: None)
        marker.record()
        rig.device.launch("compute", lambda: None)
    for step in range(3):
        rig.probe.step_started(step, ForwardMode.DECODE, "native", 1, 1)
        with rig.device.stream(rig.forward):
            graph.replay()
        rig.probe.reads_end(Verdict(), marker, rig.forward)
        rig.probe.before_wait()
        rig.schedule.wait_event(marker)
        rig.probe.after_wait(Verdict())
    rig.device.synchronize()
    rig.probe.idle()
    assert [one.slack_us for one in rig.keeper.finished] == [100.0, 100.0, 100.0]


def test_a_step_is_read_only_once_its_device_times_are_there(rig: Rig) -> None:
    rig.step(0)
    rig.step(1)
    assert rig.probe.drain() == 0
    rig.schedule.synchronize()
    assert rig.probe.drain() == 1
    rig.device.synchronize()
    assert rig.probe.drain() == 0  # the newest is left alone until another comes, or nothing does
    rig.probe.idle()
    assert rig.keeper.steps == [0, 1]


def test_drains_are_bounded_and_in_order(rig: Rig) -> None:
    # Each of these has a forward time and a gap, so that fewer of them make a drain full.
    each = DRAIN_LIMIT // FULL
    for step in range(2 * each + 1):
        rig.step(step)
    rig.device.synchronize()
    counts = [rig.probe.drain() for _ in range(4)]
    assert counts == [each, each, 0, 0]
    rig.probe.idle()
    assert rig.keeper.steps == list(range(2 * each + 1))


def test_an_older_step_that_is_not_done_holds_back_a_younger_one_that_is(rig: Rig) -> None:
    rig.step(0)
    rig.step(1, FenceKind.ABSENT)
    assert rig.probe.drain() == 0
    rig.device.synchronize()
    rig.probe.idle()
    assert rig.keeper.steps == [0, 1]


def test_records_and_timers_are_reused_and_none_is_ever_added(rig: Rig) -> None:
    made = rig.device.made
    for step in range(5 * IN_FLIGHT):
        rig.step(step)
        rig.device.synchronize()
        rig.probe.drain()
    rig.probe.idle()
    assert rig.keeper.steps == list(range(5 * IN_FLIGHT))
    free = rig.probe._reader._free
    assert {id(record) for record in rig.keeper.records} <= {id(record) for record in free}
    assert len({id(record) for record in free}) == len(free) == IN_FLIGHT
    assert rig.device.made == made
    assert rig.probe.unresolved == 0


def test_a_reused_record_starts_anew(rig: Rig) -> None:
    free = rig.probe._reader._free
    rig.probe._reader._free = deque([free[0]])
    rig.step(0)
    ends = SharedReadEnds.IN_REPLAY, SharedReadEnds.POST_REPLAY
    rig.probe.resolved(Phase(ForwardMode.DECODE, "target", "native", *ends, "no_marker"))
    rig.device.synchronize()
    rig.probe.idle()
    rig.probe.step_started(1, ForwardMode.EXTEND, "other", 3, 12)
    record = rig.probe._record
    assert record is rig.keeper.records[0]
    assert (record.step, record.mode, record.backend, record.batch_size, record.tokens) == (
        1,
        ForwardMode.EXTEND,
        "other",
        3,
        12,
    )
    assert not record.phases
    assert (record.fence, record.reason, record.downgrade) == (FenceKind.ABSENT, None, None)
    assert (record.slack_us, record.wait_us, record.forward_us, record.finished) == (None, None, None, False)
    assert (record.declared, record.resolved) == (SharedReadEnds.UNKNOWN, SharedReadEnds.UNKNOWN)


def test_with_more_steps_in_flight_than_records_the_oldest_is_given_up_and_counted(rig: Rig) -> None:
    for step in range(IN_FLIGHT + 3):
        rig.step(step)
    # A record is free again once its successor is over, so one more is given up than there are too many.
    assert rig.probe.unresolved == 4
    assert rig.probe.health.unresolved == {"in_flight": 4}
    assert rig.keeper.finished == [Finished(step, FenceKind.FINE, None, None) for step in range(4)]
    rig.device.synchronize()
    rig.probe.close()
    assert rig.keeper.steps == list(range(IN_FLIGHT + 3))
    assert {one.slack_us for one in rig.keeper.finished[4:]} == {100.0}


def test_closing_reads_all_that_is_left_and_ends_the_run_once(rig: Rig) -> None:
    for step in range(DRAIN_LIMIT + 2):
        rig.step(step)
    rig.device.synchronize()
    rig.probe.close()
    assert rig.keeper.steps == list(range(DRAIN_LIMIT + 2))
    assert (rig.keeper.runs, rig.probe.unresolved) == (1, 0)


def test_what_cannot_be_read_at_the_end_is_unresolved(rig: Rig) -> None:
    rig.step(0)
    rig.probe.close()
    assert rig.keeper.finished == [Finished(0, FenceKind.FINE, None, None)]
    assert rig.probe.unresolved == 1


def test_a_probe_without_a_device_has_no_times_and_misses_nothing_else() -> None:
    keeper = Keeper()
    probe = StepProbe(Observers([keeper]))
    verdict = Verdict(FenceKind.COARSE, FallbackReason.FORCED)
    probe.step_started(0, ForwardMode.DECODE, "native", 1, 1)
    probe.forward_started(object())
    probe.reads_end(verdict, None, object())
    probe.before_wait()
    probe.after_wait(verdict)
    assert not probe.pending  # it is only counted, and over at its barrier
    assert keeper.finished == [Finished(0, FenceKind.COARSE, None, None)]
    assert keeper.records[0].reason is FallbackReason.FORCED
