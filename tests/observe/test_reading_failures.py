"""Device times that can't be read: counted, logged once, and no step, no token and no other step's times are lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sglang_fence.bench.overlap import OverlapLoop, StepShape
from sglang_fence.device.simulated.costs import CostTable
from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.device.simulated.streams import SimulatedEvent
from sglang_fence.engine.engine import Engine
from sglang_fence.engine.options import EngineOptions
from sglang_fence.engine.requests import Request, SamplingParams
from sglang_fence.models.loading import ModelOptions
from sglang_fence.observe.probe import IN_FLIGHT
from sglang_fence.observe.sampling import Sampling
from sglang_fence.observe.summary import Summary
from sglang_fence.testing.recording import RecordingObserver

if TYPE_CHECKING:
    from collections.abc import Callable

SHAPE = StepShape(reads_us=20.0, compute_us=230.0, schedule_us=30.0)


class BrokenEvent(SimulatedEvent):
    """Raises on each read for which the device says so."""

    breaks: Callable[[], bool]

    def elapsed_us(self, end_event: SimulatedEvent, /) -> float | None:
        elapsed = super().elapsed_us(end_event)
        if elapsed is not None and self.breaks():
            msg = "the driver lost the event"
            raise RuntimeError(msg)
        return elapsed


class BreakingDevice(SimulatedDevice):
    """Breaks each ``every``-th read of a moment that is there."""

    every = 1
    reads = 0
    broken = 0

    def timed_event(self) -> SimulatedEvent:
        event = BrokenEvent(self._core, timed=True, external=False)
        event.breaks = self._breaks
        return event

    def _breaks(self) -> bool:
        self.reads += 1
        breaks = self.reads % self.every == 0
        self.broken += breaks
        return breaks


def loop_on(device: SimulatedDevice, sampling: Sampling) -> tuple[OverlapLoop, RecordingObserver]:
    heard = RecordingObserver()
    return OverlapLoop(device, lambda _: lambda: None, SHAPE, "fine", [heard], sampling), heard


def breaking(every: int) -> BreakingDevice:
    kernels = {"bench_reads": SHAPE.reads_us, "bench_compute": SHAPE.compute_us, "bench_schedule": SHAPE.schedule_us}
    device = BreakingDevice(CostTable(kernels=kernels), check_hazards=False)
    device.every = every
    return device


@pytest.mark.parametrize("every", [1, 7, 50])
def test_each_failure_costs_one_step_its_times_and_no_other(every: int, caplog: pytest.LogCaptureFixture) -> None:
    device = breaking(every)
    loop, heard = loop_on(device, Sampling(timing_every=1, trace_ratio=0.3))
    loop.run(200)
    health = loop.probe.health
    assert device.broken > 3
    assert health.errors == {"drain": device.broken}
    assert health.unresolved == {"failed": device.broken}
    assert [one.step for one in heard.finished] == list(range(200))
    unread = [one for one in heard.finished if one.slack_us is None]
    assert len(unread) == device.broken
    assert {one.slack_us for one in heard.finished if one not in unread} <= {SHAPE.compute_us}
    assert [line.getMessage() for line in caplog.records] == ["device times can't be read; serving goes on"]
    assert len({id(record) for record in loop.probe._reader._free}) == len(loop.probe._reader._free) == IN_FLIGHT


def serve(device: SimulatedDevice, *, pdmux: bool) -> tuple[list[list[int]], Summary, Engine]:
    summary = Summary()
    options = EngineOptions(model=ModelOptions(context_len=64), max_running=3, chunk=32, page_size=4, pdmux=pdmux)
    engine = Engine(device, options, [summary], sampling=Sampling(timing_every=1, trace_ratio=0.2))
    requests = [Request(index, [5, 6, 7, 8, index], SamplingParams(max_new_tokens=40)) for index in range(6)]
    for request in requests:
        engine.check(request)
    engine.serve(requests)
    return [request.output for request in requests], summary, engine


@pytest.mark.parametrize("pdmux", [False, True], ids=["one_stream", "pdmux"])
@pytest.mark.parametrize("every", [1, 5])
def test_no_token_changes_and_every_step_is_counted(every: int, *, pdmux: bool) -> None:
    expected, sound, _ = serve(SimulatedDevice(), pdmux=pdmux)
    device = BreakingDevice()
    device.every = every
    outputs, summary, engine = serve(device, pdmux=pdmux)
    assert outputs == expected
    assert {kind: cell.steps for kind, cell in summary.cells.items()} == {
        kind: cell.steps for kind, cell in sound.cells.items()
    }
    assert summary.total().steps > IN_FLIGHT
    assert summary.health.errors["drain"] == summary.health.unresolved["failed"] == device.broken > 0
    assert not engine.probe.pending
