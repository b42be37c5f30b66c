"""``--timing-every``, ``--trace-ratio``, ``--trace-coarse``: which steps they take, whatever loop runs them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_fence.contract import FallbackReason, FenceKind, ForwardMode
from sglang_fence.device.simulated.costs import CostTable
from sglang_fence.errors import ConfigError
from sglang_fence.observe.probe import IN_FLIGHT
from sglang_fence.observe.sampling import Sampler, Sampling
from tests.observe.watched import traceparent, watch

MOST_LEARNED_US = 5.0
"""How far estimates of the natural gap may be apart where fewer gaps were seen."""

LOOPS: dict[str, dict[str, Any]] = {
    "overlap": {},
    "coarse": {"fence": "coarse"},
    "off": {"fence": "off"},
    "plain": {"overlap": False},
    "pdmux": {"pdmux": True},
    "pdmux_coarse": {"pdmux": True, "fence": "coarse"},
    "eagle": {"speculative": "eagle"},
    "ngram": {"speculative": "ngram"},
}


@given(step=st.integers(0, 10_000))
def test_a_start_that_is_asked_for_while_timing_is_switched_off_is_some_later_step(step: int) -> None:
    assert Sampler(Sampling(timing_every=0), 64).next_start(step) > step


@given(every=st.integers(0, 300), step=st.integers(0, 10_000))
def test_what_is_due_next_is_a_timed_step_or_the_one_before_it(every: int, step: int) -> None:
    sampler = Sampler(Sampling(timing_every=every))
    due = sampler.next_due(step)
    assert due > step
    if every:
        wanted = (later for later in range(step + 1, step + every + 1) if later % every == 0)
        timed = next(wanted)
        assert due == max(step + 1, timed - 1)
        assert sampler.asks(timed)
        assert not any(sampler.asks(later) for later in range(step + 1, timed))
    else:
        assert not any(sampler.asks(later) for later in range(step, step + 300))


@given(st.floats(allow_nan=True, allow_infinity=True).filter(lambda ratio: not 0.0 <= ratio <= 1.0))
def test_a_ratio_that_is_no_share_is_refused(ratio: float) -> None:
    with pytest.raises(ConfigError, match=r"--trace-ratio .*: give a share of steps, 0 to 1"):
        Sampling(trace_ratio=ratio)


@given(st.integers(max_value=-1))
def test_a_negative_rhythm_is_refused(every: int) -> None:
    with pytest.raises(ConfigError, match="--timing-every -"):
        Sampling(timing_every=every)


@pytest.mark.parametrize("ratio", [0.0, 0.01, 0.25, 1.0])
def test_the_share_of_traced_steps_is_the_ratio_and_the_same_each_time(ratio: float) -> None:
    one, other = Sampler(Sampling(trace_ratio=ratio)), Sampler(Sampling(trace_ratio=ratio))
    taken = [one.traces() for _ in range(20_000)]
    assert taken == [other.traces() for _ in range(20_000)]
    assert sum(taken) / 20_000 == pytest.approx(ratio, abs=0.01 if 0 < ratio < 1 else 0)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("every", [2, 5])
def test_each_so_many_th_step_says_what_it_says_where_all_are_timed(loop: str, every: int) -> None:
    everything, some = watch(Sampling(timing_every=1), **LOOPS[loop]), watch(Sampling(every), **LOOPS[loop])
    everything.serve()
    some.serve()
    steps = len(everything.finished)
    assert steps > 3 * every
    assert everything.timed == sorted(some.finished) == list(range(steps))
    assert some.timed == list(range(0, steps, every))
    assert not some.engine.probe.unresolved
    for step in some.timed:
        one, other = some.finished[step], everything.finished[step]
        assert (one.mode, one.fence, one.reason, one.phases) == (other.mode, other.fence, other.reason, other.phases)
        assert (one.slack_us, one.wait_us, one.forward_us) == (other.slack_us, other.wait_us, other.forward_us)
        assert (one.lost_slack_us, one.clamped) == (other.lost_slack_us, other.clamped)
        assert one.forward_us is not None
        if "pdmux" not in loop:
            assert (one.gap_us, one.gap_last, one.lost_us) == (other.gap_us, other.gap_last, other.lost_us)
        else:  # where the step before on its stream was only counted it has no gap; it never has a wrong one
            assert one.gap_us in {None, other.gap_us}
            assert one.lost_us is None or one.lost_us == pytest.approx(other.lost_us, abs=MOST_LEARNED_US)
        assert (one.slack_us is None) == (one.fence in {FenceKind.DISABLED, FenceKind.ABSENT})
    kinds = {kind: cell.steps for kind, cell in everything.summary.cells.items()}
    assert {kind: cell.steps for kind, cell in some.summary.cells.items()} == kinds
    assert some.outputs == everything.outputs


@pytest.mark.parametrize("every", [1, 2, 3])
def test_an_engine_that_serves_again_times_the_same_steps_again(every: int) -> None:
    watched = watch(Sampling(timing_every=every))
    counts: list[int] = []
    for _ in range(3):
        watched.heard.calls.clear()
        watched.serve()
        counts.append(len(watched.timed))
        assert watched.timed == list(range(0, len(watched.finished), every))
    assert len(set(counts)) == 1


@pytest.mark.parametrize("ratio", [0.0, 1.0], ids=["untraced", "traced"])
def test_a_coarse_step_before_an_idle_time_is_collected_and_holds_no_later_one_back(ratio: float) -> None:
    # One request at a time: the loop has nothing to launch until the results of a request's last step are processed.
    watched = watch(Sampling(timing_every=1, trace_ratio=ratio), fence="coarse", max_running=1)
    watched.serve(count=3, new_tokens=IN_FLIGHT + 30)
    assert not watched.engine.probe.health.unresolved
    last_ones = [step for step, one in watched.finished.items() if one.lost_us is None]  # no launch follows on these
    assert len(last_ones) > 1
    assert last_ones[-1] - last_ones[0] > IN_FLIGHT
    assert {one.slack_us for one in watched.finished.values()} == {0.0}
    assert len(watched.traces) == (len(watched.finished) if ratio else 0)
    gapless = [step for step, one in watched.finished.items() if one.gap_us is None]
    assert gapless == [0, *(step + 1 for step in last_ones[:-1])]


@pytest.mark.parametrize("every", [1, 4, 0])
@pytest.mark.parametrize("loop", ["overlap", "coarse", "pdmux", "eagle"])
def test_all_coarse_steps_are_traced_beside_the_sampled_ones(loop: str, every: int) -> None:
    # EXTEND publishes nothing by default, so that prefills are coarse where decodes are fine.
    watched = watch(Sampling(every, trace_ratio=0.2, trace_coarse=True), **LOOPS[loop])
    watched.serve()
    coarse = {step for step, one in watched.finished.items() if one.fence is FenceKind.COARSE}
    sampler = Sampler(Sampling(trace_ratio=0.2))
    sampled = {step for step in range(len(watched.finished)) if sampler.traces()}
    assert coarse
    assert sampled - coarse or loop in {"coarse", "eagle"}
    assert {trace.step for trace in watched.traces} == coarse | sampled
    assert len(watched.traces) == len(coarse | sampled)
    in_turn = set(range(0, len(watched.finished), every)) if every else set[int]()
    assert set(watched.timed) == coarse | sampled | in_turn
    for step, one in watched.finished.items():
        assert one.traced == (step in coarse | sampled)
        if one.timed:
            assert one.weight == (every if step in in_turn else 0)
            assert one.forward_us is not None
            assert one.slack_us is not None


def test_a_traced_coarse_step_says_what_it_says_where_all_are_timed() -> None:
    alone, everything = watch(Sampling(0, trace_coarse=True)), watch(Sampling(1))
    alone.serve()
    everything.serve()
    assert alone.traces
    for trace in alone.traces:
        other = everything.finished[trace.step]
        assert trace.reason is FallbackReason.BACKEND_UNKNOWN
        assert trace.assumed
        assert trace.mode is ForwardMode.EXTEND
        assert (trace.slack_us, trace.wait_us, trace.forward_us) == (other.slack_us, other.wait_us, other.forward_us)
        assert (trace.lost_slack_us, trace.lost_us) == (other.lost_slack_us, other.lost_us)
        assert len(trace.links) == trace.batch_size
        assert set(trace.links) <= {traceparent(index) for index in range(6)}
        assert (trace.backend, trace.resolved, trace.phases) == (other.backend, other.resolved, tuple(other.phases))


def test_a_pass_of_time_between_launches_is_no_reason_to_lose_a_step() -> None:
    watched = watch(Sampling(timing_every=1), costs=CostTable(default_us=0), max_running=1)
    watched.serve(count=4, new_tokens=3)
    assert watched.timed == list(range(len(watched.finished)))
    assert {one.forward_us for one in watched.finished.values()} == {0.0}
