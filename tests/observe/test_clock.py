"""``DeviceClock``: one timeline through all renewals, near the wall clock by the error that it states."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_fence.contract import FenceKind, ForwardMode, SharedReadEnds
from sglang_fence.device.simulated.costs import CostTable
from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.observe.clock import RENEW_NS, DeviceClock
from sglang_fence.observe.device_times import DeviceTimes
from sglang_fence.observe.observer import Observers
from sglang_fence.observe.probe import StepProbe
from sglang_fence.observe.sampling import Sampling
from sglang_fence.observe.trace import VIRTUAL_EPOCH_NS
from sglang_fence.testing.recording import RecordingObserver
from tests.observe.unsteady import UnsteadyDevice, UnsteadyEvent

S = 1_000_000_000
ROUND_TRIP = 20_000
FLOAT_NS = 1_000
"""What floats of ms lose over ten seconds, with room: half of 2 ** -10 ms for each of the two."""

PAUSES = st.lists(st.integers(1, 4 * S), min_size=1, max_size=30)


def clock_of(device: UnsteadyDevice) -> DeviceClock:
    return DeviceClock(device, object(), virtual=False, round_trip_ns=ROUND_TRIP)


def recorded(device: UnsteadyDevice) -> UnsteadyEvent:
    event = device.timed_event()
    event.record(None)
    return event


@given(ppm=st.floats(-50, 50), latencies=st.lists(st.integers(0, ROUND_TRIP), min_size=1, max_size=5), pauses=PAUSES)
def test_a_moment_stays_where_it_is_and_later_ones_are_later_through_all_renewals(
    ppm: float, latencies: list[int], pauses: list[int]
) -> None:
    device = UnsteadyDevice(ppm, tuple(latencies))
    clock = clock_of(device)
    renewals, read = 0, list[tuple[int, float]]()
    for pause in pauses:
        device.now_ns += pause
        event = recorded(device)
        device.now_ns += ROUND_TRIP
        before = clock.read(event)
        renewals += clock.renew()
        after = clock.read(event)
        assert before is not None
        assert after is not None
        assert after == pytest.approx(before, abs=2 * FLOAT_NS / 1e3)
        assert event.reached_ns is not None
        read.append((event.reached_ns, after))
    for (one_ns, one_us), (other_ns, other_us) in pairwise(read):
        passed_us = (other_ns - one_ns) * (1 + ppm / 1e6) / 1e3
        assert other_us - one_us == pytest.approx(passed_us, abs=2 * FLOAT_NS / 1e3)
    if sum(pauses[:-1]) > 10 * S:
        assert renewals


@given(
    ppm=st.floats(-50, 50),
    latency=st.integers(0, ROUND_TRIP),
    moments=st.lists(st.integers(0, 2 * S), min_size=4, max_size=20),
)
def test_the_wall_clock_is_met_by_the_error_that_is_stated(ppm: float, latency: int, moments: list[int]) -> None:
    device = UnsteadyDevice(ppm, (latency,))
    clock = clock_of(device)
    for _ in range(2):  # until the clocks were compared, nothing is known of how they drift
        device.now_ns += RENEW_NS + 1
        clock.renew()
    assert clock.drift_ns == pytest.approx(-ppm * RENEW_NS / 1e6, abs=200)
    for pause in moments:
        device.now_ns += RENEW_NS - pause % (RENEW_NS // 4)  # steadily in use
        clock.renew()
        event = recorded(device)
        device.now_ns += latency
        on_timeline = clock.read(event)
        assert on_timeline is not None
        assert event.reached_ns is not None
        off = clock.wall(on_timeline) - clock.wall_of_host(event.reached_ns)
        assert abs(off) <= ROUND_TRIP // 2 + abs(ppm) / 1e6 * 2.1 * RENEW_NS + FLOAT_NS
        assert clock.error_ns >= ROUND_TRIP // 2 + abs(ppm) / 1e6 * 0.7 * RENEW_NS - FLOAT_NS


@given(latencies=st.lists(st.integers(0, ROUND_TRIP), min_size=2, max_size=6), pauses=PAUSES)
def test_clocks_that_keep_together_are_off_by_no_more_than_is_stated(latencies: list[int], pauses: list[int]) -> None:
    device = UnsteadyDevice(0.0, tuple(latencies))
    clock = clock_of(device)
    for pause in pauses:
        device.now_ns += pause
        clock.renew()
        device.now_ns += ROUND_TRIP
        clock.renew()
        event = recorded(device)
        device.now_ns += ROUND_TRIP
        on_timeline = clock.read(event)
        assert on_timeline is not None
        assert event.reached_ns is not None
        off = clock.wall(on_timeline) - clock.wall_of_host(event.reached_ns)
        assert abs(off) <= clock.error_ns + FLOAT_NS


def test_the_base_is_renewed_once_a_second_without_waiting_for_it() -> None:
    device = UnsteadyDevice(0.0, (0, 500, 700))
    clock = clock_of(device)
    first = clock.base_ns
    device.now_ns += RENEW_NS - 1
    assert not clock.renew()
    device.now_ns += 1
    asked = device.now_ns
    assert not clock.renew()  # it is asked for,
    device.now_ns += 499
    assert not clock.renew()  # not reached yet,
    assert clock.base_ns == first
    device.now_ns += 1
    assert clock.renew()  # and taken up
    assert clock.base_ns == asked
    assert clock.drift_ns == pytest.approx(-500, abs=FLOAT_NS)
    device.now_ns += 10
    assert not clock.renew()


def test_no_event_is_touched_while_a_stream_captures() -> None:
    device = UnsteadyDevice()
    clock = clock_of(device)
    device.now_ns += 2 * RENEW_NS
    device.capturing = True
    assert not clock.renew()
    device.capturing = False
    clock.renew()
    device.capturing = True
    assert not clock.renew()
    device.capturing = False
    assert clock.renew()


def test_real_time_is_since_the_unix_epoch() -> None:
    device = UnsteadyDevice()
    before = time.time_ns()
    clock = clock_of(device)
    assert before <= clock.wall_of_host(device.now_ns) <= time.time_ns()


@given(passed=st.integers(0, 10**7), later=st.integers(0, 10**7))
def test_virtual_time_is_its_own_wall_clock_and_exact(passed: int, later: int) -> None:
    device = SimulatedDevice(CostTable(host={"schedule": passed / 1000, "launch": later / 1000}))
    device.host("schedule")
    clock = DeviceClock(device, device.observer_stream("clock"), virtual=True)
    device.host("launch")
    event = device.timed_event()
    event.record(device.current_stream())
    on_timeline = clock.read(event)
    assert on_timeline is not None
    assert clock.wall(on_timeline) == VIRTUAL_EPOCH_NS + passed + later
    assert clock.wall_of_host(device.host_ns()) == VIRTUAL_EPOCH_NS + passed + later
    assert clock.on_timeline(device.host_ns()) == pytest.approx(on_timeline, abs=1e-6)
    assert (clock.error_ns, clock.renew()) == (0, False)


@dataclass(frozen=True)
class Fine:
    """A verdict."""

    kind: FenceKind = FenceKind.FINE
    reason: None = None
    published: tuple[SharedReadEnds, int] = (SharedReadEnds.IN_REPLAY, 7)


class Server:
    """Steps of 1 ms whose reads end after 200 µs, on an unsteady device."""

    def __init__(self, device: UnsteadyDevice) -> None:
        self.device, self.heard = device, RecordingObserver()
        times = DeviceTimes(device, object(), device, clock_of(device))
        self.probe = StepProbe(Observers([self.heard]), times, sampling=Sampling(timing_every=1), now=device.host_ns)
        self._forward = object()
        self.steps = 0

    def step(self) -> None:
        probe, device = self.probe, self.device
        probe.step_started(self.steps, ForwardMode.DECODE, "native", 1, 1)
        probe.forward_started(self._forward)
        probe.launched()
        device.now_ns += 200_000
        record = probe._record
        assert record.timers is not None
        probe.reads_end(Fine(), object(), self._forward)
        probe.before_wait()
        device.now_ns += 800_000
        record.timers.record_end(self._forward)
        probe.after_wait(Fine())
        if probe.pending:
            probe.drain()
        self.steps += 1


@pytest.mark.parametrize("pause_s", [1, 60, 3_600, 12 * 3_600])
def test_after_a_pause_the_first_steps_are_as_exact_as_any(pause_s: int) -> None:
    server = Server(UnsteadyDevice())
    for _ in range(3):
        for _ in range(12):
            server.step()
        server.probe.idle()
        server.device.now_ns += pause_s * S
    slacks = [one.slack_us for one in server.heard.finished]
    assert len(slacks) == 36
    assert slacks == pytest.approx([800.0] * 36, abs=1.0)


def test_the_error_that_is_exported_is_that_of_the_newest_base() -> None:
    server = Server(UnsteadyDevice(ppm=40.0))
    for _ in range(3_000):
        server.step()
    health = server.probe.health
    assert health.clock_error_ns == pytest.approx(ROUND_TRIP // 2 + 40_000, rel=0.05)
    assert not health.errors


def test_a_clock_that_breaks_is_counted_and_ends_no_step(caplog: pytest.LogCaptureFixture) -> None:
    server = Server(UnsteadyDevice())
    for _ in range(3):
        server.step()
    server.device.now_ns += 2 * RENEW_NS
    server.device.broken = True
    server.probe.drain()
    server.probe.idle()
    assert server.probe.health.errors["drain"] > 0
    assert [one.step for one in server.heard.finished] == [0, 1, 2]
    with caplog.at_level(logging.ERROR):
        server.probe.close()
    assert [line.getMessage() for line in caplog.records] == ["device times can't be read; serving goes on"]
