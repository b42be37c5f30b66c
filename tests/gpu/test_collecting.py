"""A collector at work breaks no capture, and device spans lie inside their step's host bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sglang_fence.bench.overlap import OverlapLoop, StepShape
from sglang_fence.catalogue.schema import Track
from sglang_fence.device.cuda_spinning import cuda_spinner
from sglang_fence.engine.engine import Engine
from sglang_fence.engine.options import EngineOptions
from sglang_fence.engine.requests import Request, SamplingParams
from sglang_fence.models.loading import ModelOptions
from sglang_fence.observe.observer import Observer
from sglang_fence.observe.sampling import Sampling
from sglang_fence.observe.summary import Summary

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglang_fence.observe.trace import StepTrace
    from tests.gpu.conftest import Opened

pytestmark = pytest.mark.gpu

EVERYTHING = Sampling(timing_every=1, trace_ratio=1.0)


class Traces(Observer):
    """Keeps traces."""

    def __init__(self) -> None:
        self.seen: list[StepTrace] = []

    def step_traced(self, trace: StepTrace) -> None:
        self.seen.append(trace)


@pytest.mark.parametrize("graph", ["full", "breakable"])
def test_device_spans_lie_inside_the_hosts_bounds(gpu: Opened, graph: str, report: Callable[[str], None]) -> None:
    """A step's device work begins after the host began with it, and ends before its results were processed."""
    traces, summary = Traces(), Summary()
    options = EngineOptions(model=ModelOptions(dtype="float32", context_len=96), graph=graph, max_running=4)
    engine = Engine(gpu.device, options, [summary, traces], sampling=EVERYTHING)
    requests = [Request(index, [5, 6, 7, index], SamplingParams(max_new_tokens=60)) for index in range(4)]
    for request in requests:
        engine.check(request)
    engine.serve(requests)
    steps = {trace.step: trace for trace in traces.seen}
    assert len(steps) > 55
    assert summary.health.unresolved.total() == 0
    late = 0
    for step, trace in steps.items():
        device = [span for span in trace.spans if span.track in {Track.FORWARD, Track.SCHEDULE}]
        assert {span.name for span in device} >= {"out_graph_metadata", "replay", "barrier_wait"}
        begin = min(span.start_ns for span in device if span.track is Track.FORWARD)
        assert begin >= trace.start_ns - trace.error_ns
        following = steps.get(step + 1)
        if following is None:
            continue
        # Its results are processed in the iteration of the step after.
        processed = next((span for span in following.spans if span.name == "process_results"), None)
        if processed is not None:
            end = max(span.end_ns for span in device if span.track is Track.FORWARD)
            late += end > processed.end_ns + trace.error_ns
    report(f"{len(steps)} steps, clock error {traces.seen[-1].error_ns} ns")
    assert late == 0


def test_a_collector_at_work_breaks_no_capture(gpu: Opened) -> None:
    """One loop's steps are in flight, unread, while another engine captures; then they are all read."""
    shape = StepShape()
    summary = Summary()
    loop = OverlapLoop(gpu.device, cuda_spinner(gpu.device), shape, "fine", [summary], Sampling(timing_every=1))
    loop.run(10)
    with gpu.device.stream(loop.schedule):
        for _ in range(4):
            loop._step(lambda _busy, _results: None)
    graph = gpu.device.Graph("another")
    with gpu.device.stream(loop.forward), gpu.device.capture(graph):
        cuda = cuda_work()
        drained = loop.probe.drain()
        cuda()
    assert drained == 0
    loop.run(10)
    assert summary.total().steps == 24
    assert summary.health.unresolved.total() == 0


def cuda_work() -> Callable[[], object]:
    import torch  # noqa: PLC0415 - only where there is a GPU

    tensor = torch.zeros(8, device="cuda")
    return lambda: tensor.add_(1)
