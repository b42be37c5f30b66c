"""In virtual time every number that is exported is the one that arithmetic gives."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_fence.bench.overlap import OverlapLoop, StepShape
from sglang_fence.catalogue import DURATION_BUCKETS, Track
from sglang_fence.contract import FallbackReason, FenceKind, ForwardMode
from sglang_fence.device.simulated.costs import CostTable
from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.observe.exporting import ExportContext, make_exporter
from sglang_fence.observe.sampling import Sampling
from sglang_fence.observe.summary import Summary
from sglang_fence.observe.trace import VIRTUAL_EPOCH_NS, StepTrace
from sglang_fence.testing.recording import RecordingObserver
from tests.exporters.perfetto.decoding import decode
from tests.exporters.prometheus.scraped import Series, scraped, total
from tests.observe.watched import watch
from tests.runtime.overlap_arithmetic import Moments, by_hand

COSTS = Path(__file__).parents[1] / "data" / "costs"
STEPS = 20
FENCES = ("fine", "coarse")
BARRIER_US = 2.0
SHAPE = StepShape(reads_us=20.0, compute_us=230.0, schedule_us=30.0)
SHAPES = st.builds(
    StepShape,
    reads_us=st.integers(0, 200).map(float),
    compute_us=st.integers(0, 200).map(float),
    schedule_us=st.integers(1, 200).map(float),
)
BARRIERS = st.sampled_from([0.0, 2.0, 50.0])


def device_for(shape: StepShape, barrier_us: float) -> SimulatedDevice:
    kernels = {"bench_reads": shape.reads_us, "bench_compute": shape.compute_us, "bench_schedule": shape.schedule_us}
    return SimulatedDevice(CostTable(kernels=kernels, host={"barrier": barrier_us}), check_hazards=False)


class Ran:
    """A loop that has run, and what was heard of it."""

    def __init__(
        self, shape: StepShape, barrier_us: float, fence: str, sampling: Sampling, trace: Path | None = None
    ) -> None:
        device = device_for(shape, barrier_us)
        self.summary, self.heard = Summary(), RecordingObserver()
        context = ExportContext(ledger=self.summary, perfetto=trace, virtual_time=True)
        exporters = [] if trace is None else [make_exporter("perfetto", context)]
        loop = OverlapLoop(
            device, lambda _: lambda: None, shape, fence, [self.summary, self.heard, *exporters], sampling
        )
        loop.run(STEPS)
        loop.probe.close()
        self.us = device.now_us
        self.series: Series = scraped(self.summary)

    @property
    def traces(self) -> list[StepTrace]:
        return [one for given_ in self.heard.of("step_traced") for one in given_ if isinstance(one, StepTrace)]

    def sum_us(self, name: str, **labels: str) -> float:
        return round(total(self.series, f"sglang_fence_{name}", **labels) * 1e6, 3)

    def check_histogram(self, name: str, values: list[float], **labels: str) -> None:
        """Check sum, count and each bucket."""
        assert self.sum_us(f"{name}_seconds_sum", **labels) == round(sum(values), 3)
        assert total(self.series, f"sglang_fence_{name}_seconds_count", **labels) == len(values)
        bounds = {
            float(dict(found)["le"]): value
            for (metric, found), value in self.series.items()
            if metric == f"sglang_fence_{name}_seconds_bucket" and labels.items() <= dict(found).items() and value
        }
        for bound in DURATION_BUCKETS:
            below = sum(value <= bound * 1e6 for value in values)
            assert bounds.get(bound, 0) == below
        assert bounds.get(float("inf"), 0) == len(values)


def at(us: float) -> int:
    return VIRTUAL_EPOCH_NS + round(us * 1000)


def gaps(moments: list[Moments]) -> dict[str, list[float]]:
    """By who was the last to let the forward start."""
    found: dict[str, list[float]] = {"fence": [], "host": []}
    for before, one in pairwise(moments):
        found["host" if one.start - one.launch < 0.002 else "fence"].append(one.start - before.end)
    return found


def lost(moments: list[Moments]) -> list[float]:
    """Behind a coarse fence."""
    found: list[float] = []
    for one, following in pairwise(moments):
        moved = max(one.wait, one.end) - max(one.wait, one.reads_end)
        found.append(following.start - max(one.end, following.launch, following.start - moved))
    return found


@pytest.mark.parametrize("fence", FENCES)
@given(shape=SHAPES, barrier_us=BARRIERS)
@settings(max_examples=15, deadline=None)
def test_histograms_have_the_sums_counts_and_buckets_that_arithmetic_gives(
    fence: str, shape: StepShape, barrier_us: float
) -> None:
    ran, moments = Ran(shape, barrier_us, fence, Sampling(timing_every=1)), by_hand(shape, barrier_us, fence, STEPS)
    labels = {"mode": "decode"}
    ran.check_histogram("slack", [one.end - one.released for one in moments], **labels)
    ran.check_histogram("wait", [max(0.0, one.released - one.wait) for one in moments], **labels)
    ran.check_histogram("forward", [shape.forward_us] * STEPS, **labels)
    for last, values in gaps(moments).items():
        ran.check_histogram("forward_gap", values, last=last)
    if fence == "coarse":
        assert ran.sum_us("lost_slack_seconds_total", reason="forced") == shape.compute_us * STEPS
        assert ran.sum_us("lost_seconds_total", reason="forced") == sum(lost(moments))
    assert total(ran.series, "sglang_fence_observer_clamps_total") == 0
    assert total(ran.series, "sglang_fence_observer_unresolved_total") == 0


@given(shape=SHAPES, barrier_us=BARRIERS)
@settings(max_examples=30, deadline=None)
def test_lost_time_is_what_a_forced_run_takes_longer(shape: StepShape, barrier_us: float) -> None:
    fine, coarse = Ran(shape, barrier_us, "fine", Sampling(0)), Ran(shape, barrier_us, "coarse", Sampling(1))
    assert coarse.sum_us("lost_seconds_total") == round(coarse.us - fine.us, 3)


@pytest.mark.parametrize("fence", FENCES)
@given(shape=SHAPES, barrier_us=BARRIERS)
@settings(max_examples=10, deadline=None)
def test_spans_lie_where_arithmetic_puts_them(fence: str, shape: StepShape, barrier_us: float) -> None:
    ran, moments = Ran(shape, barrier_us, fence, Sampling(0, trace_ratio=1.0)), by_hand(shape, barrier_us, fence, STEPS)
    assert [trace.step for trace in ran.traces] == list(range(STEPS))
    for trace, one in zip(ran.traces, moments, strict=True):
        spans = {span.name: (span.track, span.start_ns, span.end_ns) for span in trace.spans}
        assert spans["schedule"] == (Track.HOST, at(one.launch), at(one.launch))
        assert spans["launch"] == (Track.HOST, at(one.launch), at(one.launch))
        assert spans["barrier"] == (Track.HOST, at(one.launch), at(one.launch + barrier_us))
        assert spans["replay"] == (Track.FORWARD, at(one.start), at(one.end))
        assert spans["barrier_wait"] == (Track.SCHEDULE, at(one.wait), at(max(one.wait, one.released)))
        if shape.reads_us:
            assert spans["in_graph_metadata"] == (Track.FORWARD, at(one.start), at(one.reads_end))
        assert trace.released_ns == at(one.released)
        assert trace.start_ns == at(one.launch)
        assert trace.end_ns == at(max(one.end, one.wait, one.launch + barrier_us))
        assert trace.waited_for == (trace.step - 1 if trace.step else None)
        assert trace.error_ns == 0
        assert (trace.slack_us, trace.forward_us) == (one.end - one.released, one.end - one.start)


@pytest.mark.parametrize("fence", FENCES)
def test_the_slices_of_the_file_are_the_same_and_so_is_the_file_of_the_same_run(fence: str, tmp_path: Path) -> None:
    Ran(SHAPE, BARRIER_US, fence, Sampling(1, trace_ratio=1.0), tmp_path / "one")
    Ran(SHAPE, BARRIER_US, fence, Sampling(1, trace_ratio=1.0), tmp_path / "other")
    content = (tmp_path / "one").read_bytes()
    assert content == (tmp_path / "other").read_bytes()
    decoded, moments = decode(content), by_hand(SHAPE, BARRIER_US, fence, STEPS)

    def drawn(name: str) -> list[tuple[int, int]]:
        return [(one.start_ns, one.end_ns) for one in decoded.slices if one.name == name]

    assert drawn("replay") == [(at(one.start), at(one.end)) for one in moments]
    assert drawn("in_graph_metadata") == [(at(one.start), at(one.reads_end)) for one in moments]
    assert drawn("barrier_wait") == [(at(one.wait), at(max(one.wait, one.released))) for one in moments]
    assert drawn("barrier") == [(at(one.launch), at(one.launch + BARRIER_US)) for one in moments]
    let_go = [arrow for arrow in decoded.arrows.values() if arrow.source.name == "bound_record"]
    assert [arrow.from_ns for arrow in let_go] == [at(one.released) for one in moments]


@pytest.mark.parametrize(("table", "wait"), [("one_decode.json", 0.0), ("one_decode_early.json", 6.0)])
@pytest.mark.parametrize("graph", ["full", "breakable"])
def test_a_served_run_with_a_known_cost_table(table: str, wait: float, graph: str) -> None:
    # A decode takes 210 µs, its metadata the first 10 of them.
    watched = watch(Sampling(1), costs=CostTable.load(COSTS / table), graph=graph, max_running=1)
    watched.serve(count=4, new_tokens=2)
    steps = watched.finished
    decodes = {step: one for step, one in steps.items() if one.mode is ForwardMode.DECODE}
    assert {(one.slack_us, one.forward_us) for one in decodes.values()} == {(200.0, 210.0)}
    behind_prefill = {one.wait_us for step, one in decodes.items() if steps[step - 1].mode is ForwardMode.EXTEND}
    assert behind_prefill == {wait}
    series = scraped(watched.summary)
    count = total(series, "sglang_fence_steps_total", mode="decode")
    assert count == len(decodes) > 4
    assert total(series, "sglang_fence_slack_seconds_count", mode="decode", ends="in_replay") == count
    assert total(series, "sglang_fence_slack_seconds_sum", mode="decode") == pytest.approx(count * 200e-6)
    assert total(series, "sglang_fence_slack_seconds_bucket", mode="decode", le="0.000128") == 0
    assert total(series, "sglang_fence_slack_seconds_bucket", mode="decode", le="0.000256") == count


LOOPS: dict[str, dict[str, Any]] = {
    "overlap": {},
    "coarse": {"fence": "coarse"},
    "off": {"fence": "off"},
    "plain": {"overlap": False},
    "eager": {"graph": "off"},
    "pdmux": {"pdmux": True},
    "eagle": {"speculative": "eagle"},
    "multi_layer_eagle": {"speculative": "multi_layer_eagle"},
    "standalone": {"speculative": "standalone"},
}


@pytest.mark.parametrize("every", [0, 1, 3, 101])
@pytest.mark.parametrize("loop", LOOPS)
def test_sums_over_reasons_are_coarse_steps_and_sums_over_modes_all_steps(loop: str, every: int) -> None:
    watched = watch(Sampling(every), **LOOPS[loop])
    watched.serve()
    series, finished = scraped(watched.summary), watched.finished.values()
    coarse = [one for one in finished if one.fence is FenceKind.COARSE]
    steps = "sglang_fence_steps_total"
    assert total(series, steps) == len(finished) == max(watched.finished) + 1
    for kind in FenceKind:
        assert total(series, steps, fence=kind.value) == sum(one.fence is kind for one in finished)
    fallbacks = "sglang_fence_coarse_fallbacks_total"
    assert total(series, fallbacks) == total(series, steps, fence="coarse") == len(coarse)
    for reason in FallbackReason:
        assert total(series, fallbacks, reason=reason.value) == sum(one.reason is reason for one in finished)
    for mode in {one.mode for one in finished}:
        own = [one for one in finished if one.mode is mode]
        assert total(series, steps, mode=mode.value) == len(own)
        assert total(series, fallbacks, mode=mode.value) == sum(one.fence is FenceKind.COARSE for one in own)
    assert all((one.reason is None) == (one.fence is not FenceKind.COARSE) for one in finished)
    timed = [one for one in finished if one.timed]
    assert len(timed) == (-(-len(finished) // every) if every else 0)
    assert total(series, "sglang_fence_forward_seconds_count") == len(timed)
    slacks = [one.slack_us for one in timed if one.slack_us is not None]
    assert total(series, "sglang_fence_slack_seconds_count") == len(slacks)
    assert total(series, "sglang_fence_slack_seconds_sum") == pytest.approx(sum(slacks) / 1e6)
    lost_us = sum(one.lost_us * one.weight for one in timed if one.lost_us is not None)
    assert total(series, "sglang_fence_lost_seconds_total") == pytest.approx(lost_us / 1e6)
    lost_slack_us = sum(one.lost_slack_us * one.weight for one in timed if one.lost_slack_us is not None)
    assert total(series, "sglang_fence_lost_slack_seconds_total") == pytest.approx(lost_slack_us / 1e6)
