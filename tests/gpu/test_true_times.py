"""Slack, wait and lost time on a GPU, against what is known of kernels that take as long as they are told."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

import pytest
import torch

from sglang_fence.bench.overlap import OverlapLoop, StepShape
from sglang_fence.contract import FallbackReason, FenceKind, ForwardMode, SharedReadEnds
from sglang_fence.device.cuda_spinning import cuda_spinner
from sglang_fence.engine.observation import make_probe
from sglang_fence.observe.observer import Observer
from sglang_fence.observe.sampling import Sampling
from sglang_fence.observe.summary import Summary

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglang_fence.observe.record import StepRecord
    from tests.gpu.conftest import Opened

pytestmark = pytest.mark.gpu

ROUNDS = 60
WITHIN_US = 2.0


class Fine:
    """A verdict."""

    kind = FenceKind.FINE
    reason: FallbackReason | None = None
    published: tuple[SharedReadEnds, int] | None = (SharedReadEnds.IN_REPLAY, 0)


class Durations(Observer):
    """Slack and wait of each step."""

    def __init__(self) -> None:
        self.slack: list[float] = []
        self.wait: list[float] = []
        self.clamped = 0

    def step_finished(self, record: StepRecord) -> None:
        assert record.slack_us is not None
        assert record.wait_us is not None
        self.slack.append(record.slack_us)
        self.wait.append(record.wait_us)
        self.clamped += bool(record.clamped)


@pytest.mark.parametrize("delay_us", [0.0, 15.0, 60.0], ids=lambda us: f"schedule {us:g} us late")
def test_slack_and_wait_are_those_of_the_kernels(gpu: Opened, delay_us: float, report: Callable[[str], None]) -> None:
    """The truth is read off timing events around each place: nodes of the graph, and events on both streams.

    An event takes about 1 µs of its stream, so that one alone would be off by that. Everything is enqueued behind a
    gate, so that nothing of it is clamped by the moment at which the host enqueued it.
    """
    device = gpu.device
    spin = cuda_spinner(device)
    forward, schedule, gate = device.Stream("forward"), device.Stream("schedule"), device.Stream("gate")
    heard = Durations()
    probe = make_probe(device, [heard], Sampling(timing_every=1), forward, schedule)
    event: Any = torch.cuda.Event
    marker = device.Event(external=True)
    moments = [event(enable_timing=True, external=True) for _ in range(2)]
    graph = device.Graph("known")
    with device.stream(forward), device.capture(graph):
        spin(30.0)()
        moments[0].record()
        marker.record()
        moments[1].record()
        spin(200.0)()
    slack: list[float] = []
    wait: list[float] = []
    for step in range(ROUNDS):
        opens, ends, waits = device.Event(), *([event(enable_timing=True) for _ in range(2)] for _ in range(2))
        with device.stream(gate):
            spin(300.0)()
            opens.record()
        forward.wait_event(opens)
        schedule.wait_event(opens)
        probe.step_started(step, ForwardMode.DECODE, "known", 1, 1)
        with device.stream(forward):
            probe.forward_started(forward)
            graph.replay()
        if delay_us:
            with device.stream(schedule):
                spin(delay_us)()
        probe.launched()
        ends[0].record(_raw(forward))
        waits[0].record(_raw(schedule))  # A may be taken by either of the probe's two calls
        probe.reads_end(Fine(), marker, forward)
        ends[1].record(_raw(forward))
        probe.before_wait()
        waits[1].record(_raw(schedule))
        schedule.wait_event(marker)
        probe.after_wait(Fine())
        device.synchronize()
        probe.idle()
        slack.append(_between(moments, ends))
        wait.append(max(0.0, _between(waits, moments)))
    off = [_off(heard.slack, slack), _off(heard.wait, wait)]
    report(f"slack {statistics.median(slack):.2f} us, off by {off[0]:+.2f}")
    report(f"wait {statistics.median(wait):.2f} us, off by {off[1]:+.2f}; clamped {heard.clamped} of {ROUNDS}")
    report(f"calibrated: {probe.health.calibration_us}")
    assert all(abs(one) <= WITHIN_US for one in off)


@pytest.mark.parametrize("schedule_us", [0.0, 100.0, 300.0])
@pytest.mark.parametrize("compute_us", [250.0, 1000.0, 5000.0])
def test_lost_time_is_what_a_coarse_fence_costs(
    gpu: Opened, compute_us: float, schedule_us: float, report: Callable[[str], None]
) -> None:
    shape = StepShape(reads_us=20.0, compute_us=compute_us - 20.0, schedule_us=schedule_us)
    """The difference is taken where nobody observes, the lost time from a third loop that is interleaved with them."""
    device, steps = gpu.device, max(60, round(200_000 / compute_us))
    spin, summary = cuda_spinner(device), Summary()
    streams = device.Stream("schedule"), device.Stream("forward")
    loops = {
        "fine": OverlapLoop(device, spin, shape, "fine", streams=streams),
        "coarse": OverlapLoop(device, spin, shape, "coarse", streams=streams),
        "observed": OverlapLoop(device, spin, shape, "coarse", [summary], Sampling(timing_every=1), streams),
    }
    for loop in loops.values():
        loop.run(steps)
    before = summary.total().lost_us
    taken: dict[str, list[float]] = {name: [] for name in loops}
    rounds = 5
    for _ in range(rounds):
        for name, loop in loops.items():
            began = time.perf_counter_ns()
            loop.run(steps)
            taken[name].append((time.perf_counter_ns() - began) / 1e3 / steps)
    differences = [a - b for a, b in zip(taken["coarse"], taken["fine"], strict=True)]
    measured = statistics.median(differences)
    lost = (summary.total().lost_us - before) / rounds / steps
    report(f"decode {compute_us:g}, schedule {schedule_us:g}: measured {measured:.2f} us a step, lost {lost:.2f}")
    report(f"rounds: {', '.join(f'{one:.2f}' for one in sorted(differences))}")
    assert abs(lost - measured) <= max(0.2 * measured, 2.0)


def _off(seen: list[float], known: list[float]) -> float:
    return statistics.median(a - b for a, b in zip(seen, known, strict=True))


def _between(first: list[Any], second: list[Any]) -> float:
    """µs from the middle of one pair of events to that of another."""
    origin = first[0]
    middles = [sum(origin.elapsed_time(event) for event in pair) / 2 for pair in (first, second)]
    return float(1e3 * (middles[1] - middles[0]))


def _raw(stream: object) -> Any:  # noqa: ANN401 - torch's stream
    return getattr(stream, "raw")  # noqa: B009 - the protocol has none
