"""The loop of PD multiplexing: what runs at once, where barriers stand, who waits, and what the probe measures."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from sglang_fence.device.simulated.costs import CostTable
from sglang_fence.device.simulated.timeline import Timeline
from sglang_fence.engine.options import EngineOptions, check_pdmux
from sglang_fence.engine.pdmux import IN_FLIGHT, PDMuxScheduler
from sglang_fence.errors import ConfigError
from sglang_fence.fence.barrier import WarBarrier
from tests.engine.pdmux_serving import Prompt, serve, varied

if TYPE_CHECKING:
    from sglang_fence.device.protocol import Stream
    from sglang_fence.device.simulated.timeline import Lane
    from sglang_fence.engine.batch import ScheduledBatch
    from sglang_fence.fence.barrier import LastReader, Verdict

LONG_PREFILL = CostTable(kernels={"extend_layer": 400.0})
"""A prefill takes as long as several decodes, so it pays to run beside it."""


def test_prefill_and_decode_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    busy: dict[str, list[tuple[int, int]]] = {}
    original = Timeline.launch

    def launch(self: Timeline, lane: Lane, cost: int) -> int:
        end = original(self, lane, cost)
        busy.setdefault(lane.name, []).append((end - cost, end))
        return end

    monkeypatch.setattr(Timeline, "launch", launch)
    serve(varied(), attention="trtllm_mha", costs=LONG_PREFILL)
    beside = busy["decode_beside_prefill"]
    shared = sum(
        max(0, min(end, other_end) - max(start, other_start))
        for start, end in busy["prefill"]
        for other_start, other_end in beside
    )
    assert shared > sum(end - start for start, end in beside) // 2


def time_against_a_single_stream(fence: str) -> float:
    """Return the virtual time that a long output beside many prompts takes, as a share of that without multiplexing."""
    prompts = [Prompt([1, 2, 3], new=64), *(Prompt([index] * 200, new=2) for index in range(8))]
    options: dict[str, Any] = {
        "attention": "trtllm_mha",
        "fence": fence,
        "max_running": 4,
        "chunk": 64,
        "prefix_cache": False,
    }
    mux = serve(prompts, costs=LONG_PREFILL, **options)
    single = serve(prompts, costs=LONG_PREFILL, pdmux=False, **options)
    assert mux.outputs == single.outputs
    times = [served.scheduler.virtual_seconds for served in (mux, single)]
    assert times[0] is not None
    assert times[1] is not None
    return times[0] / times[1]


def test_serving_takes_less_time_and_a_coarse_fence_throws_that_away() -> None:
    """Behind a coarse fence the next decode can't be prepared before the prefill's end."""
    assert time_against_a_single_stream("fine") < 0.8
    assert time_against_a_single_stream("coarse") > 0.9


def test_each_launch_is_followed_by_its_own_barrier_against_its_own_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, int, str]] = []
    enqueue, apply = PDMuxScheduler._enqueue, WarBarrier.apply

    def noting_enqueue(self: PDMuxScheduler, batch: ScheduledBatch, forward: Stream, *rest: object) -> None:
        calls.append(("launch", batch.work.step, forward.name))
        enqueue(self, batch, forward, *rest)  # type: ignore[arg-type]

    def noting_apply(self: WarBarrier, step: int, reader: LastReader, forward_stream: Stream) -> Verdict:
        calls.append(("barrier", step, forward_stream.name))
        return apply(self, step, reader, forward_stream)

    monkeypatch.setattr(PDMuxScheduler, "_enqueue", noting_enqueue)
    monkeypatch.setattr(WarBarrier, "apply", noting_apply)
    run = serve(varied())
    assert len(calls) == 2 * run.scheduler.steps
    assert [step for _, step, _ in calls[::2]] == list(range(run.scheduler.steps))
    for launch, barrier in zip(calls[::2], calls[1::2], strict=True):
        assert (launch[0], *launch[1:]) == ("launch", *barrier[1:])
        assert barrier[0] == "barrier"


def test_a_step_of_a_kind_runs_and_one_waits_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    most: Counter[str] = Counter()
    original = PDMuxScheduler._launch_on

    def launch_on(self: PDMuxScheduler, batch: ScheduledBatch, stream: Stream, backend: str) -> None:
        original(self, batch, stream, backend)
        kinds = Counter(str(flight.mode) for flight in self._flights)
        for kind, count in kinds.items():
            most[kind] = max(most[kind], count)

    monkeypatch.setattr(PDMuxScheduler, "_launch_on", launch_on)
    serve(varied(), attention="trtllm_mha", chunk=64)
    assert most == {"decode": IN_FLIGHT, "extend": IN_FLIGHT}


def test_a_request_joins_on_the_device_where_nobody_else_would_wait_with_it() -> None:
    """A lone request's decode is launched behind its prefill, and the host blocks on neither before."""
    run = serve([Prompt([1, 2, 3], new=4)], attention="trtllm_mha")
    scheduler = run.scheduler
    assert isinstance(scheduler, PDMuxScheduler)
    assert scheduler.cross_stream_waits > 0
    assert [launch.stream for launch in run.launches][:2] == ["prefill", "decode_beside_prefill"]


def test_nothing_is_waited_for_that_does_not_conflict() -> None:
    """Most decodes run beside prefills of others, with which they have at most a cached prefix in common."""
    run = serve(varied(), attention="trtllm_mha", costs=LONG_PREFILL)
    assert isinstance(run.scheduler, PDMuxScheduler)
    assert run.engine.memory.cached_tokens > 0
    assert 0 < run.scheduler.cross_stream_waits < run.scheduler.steps // 3


def test_a_steps_times_are_those_of_its_own_stream() -> None:
    """A decode's slack is no more than a decode takes, though a prefill of far more runs beside it."""
    costs = CostTable(kernels={"extend_layer": 4000.0})
    run = serve(varied(), attention="trtllm_mha", costs=costs)
    modes = run.summary.by_mode()
    assert modes["decode"].steps == len(modes["decode"].slack_us)
    assert max(modes["decode"].slack_us) < 1000.0
    assert min(modes["extend"].slack_us) > 4000.0
    assert run.engine.probe.unresolved == 0


def test_what_a_decode_used_is_let_go_while_an_older_prefill_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """R12 holds a step's tensors to the step's own end, not to that of an older step elsewhere."""
    held: list[int] = []
    original = PDMuxScheduler._reap

    def reap(self: PDMuxScheduler) -> None:
        original(self)
        held.append(max(len(lifetimes) for lifetimes in self._lifetimes_of.values()))

    monkeypatch.setattr(PDMuxScheduler, "_reap", reap)
    serve(varied(), attention="trtllm_mha", costs=CostTable(kernels={"extend_layer": 4000.0}))
    assert max(held) <= IN_FLIGHT
    assert held[-1] == 0


def test_options_that_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match="--pdmux --no-overlap"):
        EngineOptions(pdmux=True, overlap=False)
    with pytest.raises(ConfigError, match="--pdmux --speculative eagle"):
        check_pdmux(overlap=True, algorithm="eagle")
    check_pdmux(overlap=True, algorithm="none")
