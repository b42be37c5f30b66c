"""Quick steps of the runtime: in front of a probe's methods, nothing that is counted or read may come out otherwise."""

# ruff: noqa: ANN401 - what stands in for torch's objects has no type of theirs

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sglang_fence import native
from sglang_fence.contract import FallbackReason, FenceKind, ForwardMode, SharedReadEnds
from sglang_fence.observe.clock import DeviceClock
from sglang_fence.observe.device_times import DeviceTimes, Offsets
from sglang_fence.observe.flight.ring import FlightRing
from sglang_fence.observe.flight.snapshot import steps_of
from sglang_fence.observe.observer import Observer, Observers
from sglang_fence.observe.probe import StepProbe
from sglang_fence.observe.record import Phase
from sglang_fence.observe.sampling import Sampling
from sglang_fence.observe.summary import Summary
from tests.device.driver.test_moments import (
    CLOCK,
    FORWARD,
    OBSERVER,
    SCHEDULE,
    Device,
    Stream,
    compiled,
    driver,
    marker,
    observer,
)

if TYPE_CHECKING:
    from sglang_fence.observe.trace import StepTrace
    from tests.device.driver.fake_driver import FakeDriver

__all__ = ["driver"]

pytestmark = pytest.mark.skipif(not native.part(native.QUICK).usable, reason="the compiled part can't be used")

IN, POST = SharedReadEnds.IN_REPLAY, SharedReadEnds.POST_REPLAY
DECODE, VERIFY = ForwardMode.DECODE, ForwardMode.TARGET_VERIFY
PHASES = {
    (mode, ends): Phase(mode, "target", "native", IN, ends, None) for mode in (DECODE, VERIFY) for ends in (IN, POST)
}
NATIVE, OTHER = "native", "other"


class Verdict(NamedTuple):
    """How a fence came out."""

    kind: FenceKind
    reason: FallbackReason | None
    published: tuple[SharedReadEnds, int] | None


class Heard(Observer):
    """Keeps which steps were traced, and which one each waited for."""

    def __init__(self) -> None:
        self.traced: list[tuple[int, int | None]] = []

    def step_traced(self, trace: StepTrace) -> None:
        self.traced.append((trace.step, trace.waited_for))


class Served:
    """A probe, and the runtime that calls it."""

    def __init__(
        self,
        driver: FakeDriver,
        sampling: Sampling,
        *,
        quick: bool,
        recorded: bool = False,
        lends: bool = True,
        start_every: int = 4,
    ) -> None:
        driver.reset()
        self.driver, self.heard, self.summary = driver, Heard(), Summary()
        device: Any = Device(compiled(driver.path))
        self.device = device
        device.driver_library = str(driver.path)
        if not lends:
            device.as_event = lambda _: None
        self.forward, schedule = Stream(FORWARD), Stream(SCHEDULE)
        clock = DeviceClock(device, observer(driver, CLOCK), virtual=False)
        times = DeviceTimes(device, schedule, observer(driver), clock, Offsets(1.5, 2.5))
        self.ring = FlightRing(8) if recorded else None
        installed = [self.summary, self.heard]
        self.probe = StepProbe(
            Observers(installed),
            times,
            sampling=sampling,
            health=self.summary.health,
            ring=self.ring,
            start_every=start_every,
        )
        if quick:
            self.probe.quicken(self.summary)
        self.step = 0
        self._reached = 0
        self._stopped: set[int] = set()

    def act(self, action: str) -> None:
        getattr(self, action)()

    def fine(self, mode: ForwardMode = DECODE, backend: str = NATIVE, ends: SharedReadEnds = IN) -> None:
        publication = 5 + 2 * self.step  # they are counted over all runners: no number of a step's
        self.run(Verdict(FenceKind.FINE, None, (ends, publication)), mode, backend, [PHASES[mode, ends]])

    def verify(self) -> None:
        self.fine(VERIFY)

    def post(self) -> None:
        self.fine(ends=POST)

    def of_another_backend(self) -> None:
        self.fine(backend=OTHER)

    def coarse(self) -> None:
        self.run(
            Verdict(FenceKind.COARSE, FallbackReason.FORCED, (IN, self.step)), DECODE, NATIVE, [PHASES[DECODE, IN]]
        )

    def disabled(self) -> None:
        self.run(Verdict(FenceKind.DISABLED, None, None), DECODE, NATIVE, [PHASES[DECODE, IN]])

    def two_phases(self) -> None:
        phases = [PHASES[DECODE, IN], PHASES[VERIFY, IN]]
        self.run(Verdict(FenceKind.FINE, None, (IN, self.step)), DECODE, NATIVE, phases)

    def same_phase_twice(self) -> None:
        self.run(Verdict(FenceKind.FINE, None, (IN, self.step)), DECODE, NATIVE, [PHASES[DECODE, IN]] * 2)

    def no_phase(self) -> None:
        self.run(Verdict(FenceKind.FINE, None, (IN, self.step)), DECODE, NATIVE, [])

    def published_otherwise(self) -> None:
        self.run(Verdict(FenceKind.FINE, None, (POST, self.step)), DECODE, NATIVE, [PHASES[DECODE, IN]])

    def unpublished(self) -> None:
        self.run(Verdict(FenceKind.FINE, None, None), DECODE, NATIVE, [PHASES[DECODE, IN]])

    def no_barrier(self) -> None:
        self.run(None, DECODE, NATIVE, [PHASES[DECODE, IN]])

    def stopped(self) -> None:
        """Begin a step whose forward raises: it isn't heard of any more."""
        probe = self.probe
        probe.step_started(self.step, DECODE, NATIVE, 3, 7)
        self.step += 1
        if probe.timing:
            probe.forward_started(self.forward)
        probe.resolved(PHASES[DECODE, IN])
        self._stopped.add(self.step - 1)

    def idle_midway(self) -> None:
        """Idle in the midst of a step."""
        probe, verdict = self.probe, Verdict(FenceKind.FINE, None, (IN, self.step))
        probe.step_started(self.step, DECODE, NATIVE, 3, 7)
        self.step += 1
        if probe.timing:
            probe.forward_started(self.forward)
        probe.resolved(PHASES[DECODE, IN])
        self.reach_all()
        probe.idle()
        event = marker()
        if probe.timing:
            probe.reads_end(verdict, event, self.forward)
        if probe.recording:
            probe.at_barrier(verdict, event)
        probe.after_wait(verdict)
        self.reach_all()

    def idle(self) -> None:
        self.reach_all()
        self.probe.idle()

    def flush(self) -> None:
        self.reach_all()
        self.probe.flush()

    def run(self, verdict: Verdict | None, mode: ForwardMode, backend: str, phases: list[Phase]) -> None:
        """Run one step, as the runtime's scheduler and barrier do."""
        probe, event = self.probe, marker()
        probe.step_started(self.step, mode, backend, 3, 7)
        self.step += 1
        if probe.timing:
            probe.forward_started(self.forward)
        self.reach_all(forward_us=2.0)
        for phase in phases:
            probe.resolved(phase)
        lent = probe.end_event() if probe.timing else None
        if lent is not None:
            lent.record(self.forward)
        if probe.timing and probe.recording:
            probe.launched()
        if verdict is None:
            probe.no_barrier()
        else:
            left = probe.reads_end(verdict, event, self.forward) if probe.timing else False
            if probe.recording:
                probe.at_barrier(verdict, event if verdict.kind is FenceKind.FINE else None)
            if left:
                probe.before_wait()
            probe.after_wait(verdict)
        self.reach_all()
        if probe.pending:
            probe.drain()

    def reach_all(self, forward_us: float = 60.0) -> None:
        """Let all be reached that was recorded: where a step is by then, on the stream."""
        calls, begun = self.driver.calls, self.step * 100.0
        at_us = {FORWARD: forward_us, OBSERVER: 20.0 + self.step % 7, SCHEDULE: 10.0 + 2 * (self.step % 11), CLOCK: 0.0}
        for call in calls[self._reached :]:
            if call.name == "record":
                self.driver.reach(call.first, begun + at_us[call.second])
        self._reached = len(calls)

    def outcome(self) -> tuple[object, ...]:
        """Return all that anybody could be told."""
        summary, health = self.summary, self.summary.health
        return (
            {
                kind: (
                    cell.steps,
                    sorted((route.phases, route.steps) for route in cell.routes),
                    cell.slack.counts,
                    pytest.approx(cell.slack.sum_us),
                    cell.wait.counts,
                    pytest.approx(cell.wait.sum_us),
                )
                for kind, cell in summary.cells.items()
            },
            {mode: (sorted(one.slack_us), sorted(one.wait_us)) for mode, one in summary.by_mode().items()},
            dict(summary.clamps),
            {cause: steps for cause, steps in health.unresolved.items() if steps},
            dict(health.errors),
            self.heard.traced,
            self.recorded(),
        )

    def recorded(self) -> list[tuple[object, ...]]:
        """Return what the flight recorder has, but for times and identities."""
        if self.ring is None:
            return []
        found = steps_of(self.ring.all_records(), self.probe.newest)
        kept: list[tuple[object, ...]] = [
            (one.step, one.mode, one.fence, one.phases, one.batch_size, one.tokens, one.resolved, one.record)
            for one in found
            if one.step not in self._stopped and one.step >= self.step - 8  # both keep these, and one or the other more
        ]
        return kept


ACTIONS = sorted(
    name
    for name in vars(Served)
    if not name.startswith("_") and name not in {"act", "run", "reach_all", "outcome", "recorded"}
)
RUNS = st.lists(st.tuples(st.integers(0, 12), st.sampled_from(ACTIONS)), max_size=8)


@given(
    runs=RUNS,
    every=st.sampled_from([0, 1, 1, 3, 101]),
    ratio=st.sampled_from([0.0, 0.0, 0.1]),
    recorded=st.booleans(),
    lends=st.booleans(),
)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_counted_and_read_is_what_the_general_way_alone_counts_and_reads(
    driver: FakeDriver, runs: list[tuple[int, str]], every: int, ratio: float, *, recorded: bool, lends: bool
) -> None:
    outcomes: list[tuple[object, ...]] = []
    for quick in (True, False):
        sampling = Sampling(timing_every=every, trace_ratio=ratio)
        served = Served(driver, sampling, quick=quick, recorded=recorded, lends=lends)
        for times, action in runs:
            for _ in range(times):
                served.fine()
            served.act(action)
        served.flush()
        outcomes.append(served.outcome())
    assert outcomes[0] == outcomes[1]


def test_the_general_way_is_taken_where_more_is_asked_and_nowhere_else(driver: FakeDriver) -> None:
    served = Served(driver, Sampling(timing_every=1), quick=True)
    probe, general = served.probe, []
    choose = probe._choose

    def counted(step: int) -> Any:
        general.append(step)
        return choose(step)

    vars(probe)["_choose"] = counted
    for _ in range(40):
        served.fine()
    served.flush()
    assert [step for step in general if step > 12] == [step for step in range(13, 40) if step % 4 in {0, 3}]
    ((_, cell),) = served.summary.cells.items()
    assert (cell.steps, cell.slack.count, cell.wait.count) == (40, 40, 40)
    assert not served.probe.unresolved


def test_another_sampling_is_heeded_by_the_next_step_that_goes_the_general_way(driver: FakeDriver) -> None:
    served = Served(driver, Sampling(timing_every=1), quick=True)
    for _ in range(20):
        served.fine()
    served.probe.sampling.timing_every = 0
    for _ in range(20):
        served.fine()
    served.flush()
    ((_, cell),) = served.summary.cells.items()
    assert cell.steps == 40
    assert 20 <= cell.slack.count <= 24


def test_quick_steps_are_read_as_they_come(driver: FakeDriver) -> None:
    served = Served(driver, Sampling(timing_every=1), quick=True, start_every=256)
    for _ in range(200):
        served.fine()
    ((_, cell),) = served.summary.cells.items()
    assert cell.slack.count >= 200 - 9 - 9  # a batch of either kind may wait
    served.flush()
    assert cell.slack.count == 200
    assert not served.probe.unresolved


def test_nothing_is_read_while_the_device_captures(driver: FakeDriver) -> None:
    served = Served(driver, Sampling(timing_every=1), quick=True, start_every=256)
    for _ in range(40):
        served.fine()
    ((_, cell),) = served.summary.cells.items()
    before, device = cell.slack.count, served.device
    device.is_capturing = lambda: True
    for _ in range(12):
        served.fine()
    assert served.probe.drain() == 0
    assert cell.slack.count == before
    device.is_capturing = lambda: False
    served.flush()
    assert cell.slack.count == 52 - served.probe.unresolved


def test_quick_steps_are_accounted_for(driver: FakeDriver) -> None:
    served = Served(driver, Sampling(timing_every=101), quick=True)
    for _ in range(400):
        served.fine()
    assert {name for name, ns in served.summary.health.cost_ns.items() if ns} >= {"step_started", "after_wait"}


def test_a_driver_that_refuses_is_counted_and_steps_go_on(driver: FakeDriver, caplog: pytest.LogCaptureFixture) -> None:
    served = Served(driver, Sampling(timing_every=1), quick=True)
    for _ in range(21):
        served.fine()
    driver.fail("wait", 700)
    served.fine()
    driver.fail("wait", 0)
    for _ in range(20):
        served.fine()
    served.flush()
    ((_, cell),) = served.summary.cells.items()
    assert cell.steps == 42
    assert served.summary.health.errors["drain"] == 1
    assert "700" in caplog.text
