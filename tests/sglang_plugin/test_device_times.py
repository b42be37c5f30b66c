"""Device times through the hooks: a scheduler whose streams are the simulated device's, in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from sglang_fence.contract import FenceKind
from sglang_fence.device.simulated.costs import CostTable
from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.observe.probe import IN_FLIGHT, StepProbe
from sglang_fence.observe.sampling import TIMED, Sampler, Sampling
from sglang_fence.sglang_plugin.probing import install_probe
from sglang_fence.sglang_plugin.repeating import Repeating
from sglang_fence.sglang_plugin.repeating_compiled import compiled_class
from tests.sglang_plugin.scheduling import Batch, Scheduler, member

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sglang_fence.device.simulated.streams import SimulatedStream

TURN = 3
NEVER = 1 << 40
"""A step that isn't reached."""
REPEATING = [kind for kind in (Repeating, compiled_class()) if kind is not None]
READ_US, REST_US = 20.0, 980.0
STEPS = 12
MANY = 2 * IN_FLIGHT


class Streams:
    """The simulated device's streams need no dress."""

    def __init__(self, device: SimulatedDevice) -> None:
        self.device = device

    def dressed(self, raw: Any, name: str = "forward") -> Any:  # noqa: ANN401, ARG002 - a stream
        return raw

    def event(self, raw: Any) -> Any:  # noqa: ANN401 - an event
        return raw


class OnDevice(Scheduler):
    """Decodes on the simulated device: a kernel that reads what is shared, the marker, and the rest of the forward."""

    def __init__(
        self, *, every: int = 1, publishes: bool = True, repeating: type[Repeating] | None = Repeating
    ) -> None:
        super().__init__(repeating=repeating)
        costs = CostTable(kernels={"read": READ_US, "rest": REST_US})
        self.device = SimulatedDevice(costs)
        self.forward_stream = self.watch.forward_stream = self.device.Stream("forward")
        self.schedule_stream = self.device.Stream("schedule")
        self.marker = self.device.Event()
        self.publishes = publishes
        shaped: Any = self
        streams: Any = Streams(self.device)
        sampling = Sampling(timing_every=every)
        install_probe(self.steps, shaped, self.observers, sampling, self.ledger.health, streams, live=False)

    @property
    def streams(self) -> tuple[SimulatedStream, SimulatedStream]:
        forward: Any = self.forward_stream
        schedule: Any = self.schedule_stream
        return forward, schedule

    def decode(self) -> None:
        self.step("DECODE", self._forward)

    def _compute(self, *, marked: bool) -> None:
        forward, schedule = self.streams
        forward.wait_stream(schedule)
        with self.device.stream(forward):
            self.forward_inputs()
            self.device.launch("read", _nothing)
            if marked:
                self.marker.record(forward)
            self.device.launch("rest", _nothing)

    def _forward(self) -> None:
        self._compute(marked=True)
        self.graph(self.target, "DECODE", "IN_REPLAY" if self.publishes else "UNKNOWN")
        if self.publishes:
            self.target.shared_read_done_event = self.marker

    def apply_barrier(self) -> None:
        forward, schedule = self.streams
        if self.target.shared_read_done_event is None:
            schedule.wait_stream(forward)
        else:
            schedule.wait_event(self.marker)
        super().apply_barrier()

    def finish(self) -> None:
        self.device.synchronize()
        self.idle()


class Preparing(OnDevice):
    """Prepares on the schedule stream, behind the fence, what the next forward waits for."""

    def __init__(self, *, every: int, repeating: type[Repeating] | None) -> None:
        super().__init__(every=every, repeating=repeating)
        self.result_queue, self.last_batch = [object()], Batch(member("DECODE"))

    def apply_barrier(self) -> None:
        super().apply_barrier()
        forward, schedule = self.streams
        if self.border.forced_on:
            schedule.wait_stream(forward)
        with self.device.stream(schedule):
            self.device.launch("read", _nothing)

    def extend(self) -> None:
        """Prefill, which publishes nothing."""
        self.step("EXTEND", self._prefill)

    def _prefill(self) -> None:
        self._compute(marked=False)
        self.eager(self.target, "EXTEND", publishes=False)

    def lost_us(self, forced: Sequence[bool]) -> float:
        """Return what is lost in all, where these steps are forced coarse."""
        for self.border.forced_on in forced:
            self.decode()
        self.finish()
        return sum(cell.lost_us for cell in self.ledger.cells.values())


def _nothing() -> None:
    """What it computes."""


@pytest.mark.parametrize("every", [1, 3])
def test_slack_is_what_is_left_of_the_forward_behind_the_marker(every: int) -> None:
    scheduler = OnDevice(every=every)
    for _ in range(STEPS):
        scheduler.decode()
    scheduler.finish()
    ((kind, cell),) = scheduler.ledger.cells.items()
    assert (kind.fence, cell.steps) == (FenceKind.FINE, STEPS)
    assert cell.slack.count == cell.wait.count == STEPS // every
    assert cell.slack.sum_us / cell.slack.count == pytest.approx(REST_US)
    assert cell.forward.count > 0  # not of each step: its start is taken now and then
    assert cell.forward.sum_us / cell.forward.count == pytest.approx(READ_US + REST_US)
    assert not scheduler.ledger.health.unresolved
    assert not scheduler.ledger.health.errors


def test_a_coarse_step_has_no_slack_and_waits_for_the_whole_forward() -> None:
    scheduler = OnDevice(publishes=False)
    for _ in range(STEPS):
        scheduler.decode()
    scheduler.finish()
    ((kind, cell),) = scheduler.ledger.cells.items()
    assert (kind.fence, cell.steps) == (FenceKind.COARSE, STEPS)
    assert cell.slack.sum_us == 0
    assert cell.wait.count == STEPS


@pytest.mark.parametrize("repeating", REPEATING)
@pytest.mark.parametrize("forced", ["FFFF", "FFFC", "FFFCFFCC", "FFFCFFFCFFFC", "FFCCCCCC", "CCCCCCC"])
def test_what_a_forced_step_loses_is_known_though_it_began_as_a_repeated_one(
    monkeypatch: pytest.MonkeyPatch, repeating: type[Repeating], forced: str
) -> None:
    # No forward's start is timed but behind coarse steps that are.
    monkeypatch.setattr(Sampler, "asks", lambda _, step: 0 if step % TURN else TIMED)
    monkeypatch.setattr(StepProbe, "due", NEVER)

    def lost_us(kind: type[Repeating] | None) -> float:
        scheduler = Preparing(every=TURN, repeating=kind)
        monkeypatch.setattr(scheduler.steps.probe, "_now", scheduler.device.host_ns)
        return scheduler.lost_us([kind == "C" for kind in forced + "F"])

    timed = forced[::TURN].count("C")
    assert lost_us(repeating) == lost_us(None) == pytest.approx(TURN * READ_US * timed)


@pytest.mark.parametrize("repeating", REPEATING)
def test_what_repeats_is_still_known_behind_a_timed_coarse_step_and_the_one_after_it(
    monkeypatch: pytest.MonkeyPatch, repeating: type[Repeating]
) -> None:
    monkeypatch.setattr(Sampler, "asks", lambda _, step: 0 if step != TURN else TIMED)
    monkeypatch.setattr(StepProbe, "due", NEVER)
    scheduler = Preparing(every=TURN, repeating=repeating)
    current, begin = scheduler.steps.current, scheduler.watch.begin
    general: list[int] = []

    def count(*args: Any) -> None:  # noqa: ANN401 - whatever it takes
        begin(*args)
        general.append(current.number)

    monkeypatch.setattr(scheduler.watch, "begin", count)
    likes: list[object] = []
    for step in range(TURN + 4):
        scheduler.border.forced_on = step == TURN
        scheduler.decode()
        likes.append(current.like)
    assert general == [0, TURN + 1]
    assert likes[0] is not None
    assert set(likes) == {likes[0]}


def test_device_times_are_read_while_it_serves_and_not_only_when_it_pauses() -> None:
    scheduler = OnDevice()
    for _ in range(MANY):
        scheduler.decode()
        scheduler.device.synchronize()
    ((_, cell),) = scheduler.ledger.cells.items()
    assert cell.slack.count > MANY // 2
    assert not scheduler.ledger.health.unresolved


def test_what_is_exported_of_the_clock_is_its_newest() -> None:
    scheduler = OnDevice()
    health = scheduler.ledger.health
    health.clock_error_ns = -1  # whoever looked at start alone would leave it
    scheduler.decode()
    scheduler.finish()
    assert health.clock_error_ns >= 0


def test_once_the_scheduler_is_done_nothing_is_told_of_its_steps() -> None:
    scheduler = OnDevice()
    scheduler.decode()
    scheduler.finish()
    scheduler.steps.observe_no_more()
    scheduler.decode()
    assert scheduler.counted().total() == 1
