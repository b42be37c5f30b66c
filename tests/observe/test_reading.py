"""``Reader``: which steps have durations, and that every record comes back once, whatever is sampled and drained."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_fence.bench.overlap import OverlapLoop, StepShape
from sglang_fence.bench.spinning import simulated
from sglang_fence.contract import FenceKind
from sglang_fence.observe.probe import IN_FLIGHT
from sglang_fence.observe.sampling import Sampling
from sglang_fence.testing.recording import RecordingObserver

SHAPE = StepShape(reads_us=20.0, compute_us=230.0, schedule_us=30.0)
SLACK, LOST = SHAPE.compute_us, SHAPE.schedule_us
"""Behind a coarse fence the schedule stream's 30 µs come after the forward instead of beside it."""


def loop_of(fence: str, sampling: Sampling) -> tuple[OverlapLoop, RecordingObserver]:
    device, spinner = simulated(SHAPE)
    heard = RecordingObserver()
    return OverlapLoop(device, spinner, SHAPE, fence, [heard], sampling), heard


def records_of(loop: OverlapLoop) -> list[int]:
    return [id(record) for record in loop.probe._reader._free]


@pytest.mark.parametrize("every", [1, 2, 3, 7, 101])
@pytest.mark.parametrize("fence", ["fine", "coarse"])
def test_each_so_many_th_step_has_the_durations_that_it_has_when_all_are_timed(fence: str, every: int) -> None:
    steps = 3 * every + 2
    everything, all_heard = loop_of(fence, Sampling(timing_every=1))
    everything.run(steps)
    loop, heard = loop_of(fence, Sampling(timing_every=every))
    loop.run(steps)
    assert sorted(one.step for one in heard.finished) == list(range(steps))
    timed = [one for one in heard.finished if one.timed]
    assert [one.step for one in timed] == list(range(0, steps, every))
    expected = {one.step: one for one in all_heard.finished}
    for one in timed:
        other = expected[one.step]
        assert (one.slack_us, one.wait_us, one.forward_us, one.lost_slack_us, one.lost_us) == (
            other.slack_us,
            other.wait_us,
            other.forward_us,
            other.lost_slack_us,
            other.lost_us,
        )
        assert (one.gap_us, one.gap_last) == (other.gap_us, other.gap_last)
        assert (one.gap_us is None) == (one.step == 0)
        assert one.weight == every
    assert not loop.probe.unresolved
    for one in heard.finished:
        if not one.timed:
            assert {one.slack_us, one.wait_us, one.forward_us, one.gap_us, one.lost_us} == {None}


@pytest.mark.parametrize("start_every", [2, 8, 100])
@pytest.mark.parametrize("every", [1, 3, 8, 11])
@pytest.mark.parametrize("fence", ["fine", "coarse"])
def test_where_fewer_starts_are_taken_slack_and_wait_are_the_same(fence: str, every: int, start_every: int) -> None:
    steps = 3 * max(every, start_every) + 2
    everything, all_heard = loop_of(fence, Sampling(timing_every=every))
    everything.run(steps)
    loop, heard = loop_of(fence, Sampling(timing_every=every))
    loop.probe._sampler._start_every = start_every
    loop.run(steps)
    expected = {one.step: one for one in all_heard.finished}
    timed = {one.step: one for one in heard.finished if one.timed}
    assert list(timed) == list(range(0, steps, every))
    assert [one.step for one in heard.finished] == [one.step for one in all_heard.finished]
    for step, one in timed.items():
        other = expected[step]
        assert (one.slack_us, one.wait_us, one.clamped) == (other.slack_us, other.wait_us, other.clamped)
        assert one.lost_us == other.lost_us
    with_start = [step for step, one in timed.items() if one.forward_us is not None]
    rhythm = next(multiple for multiple in range(every, every + start_every + 1, every) if multiple >= start_every)
    in_turn = list(range(0, steps, rhythm))
    # Behind a coarse step its successor's start is taken: all are coarse, so that all starts are.
    assert with_start == (list(timed) if fence == "coarse" and every == 1 else in_turn)
    assert [timed[step].gap_us for step in in_turn] == [expected[step].gap_us for step in in_turn]
    assert not loop.probe.unresolved


@pytest.mark.parametrize("every", [1, 2, 3, 10])
def test_lost_sums_over_timed_steps_stand_for_all_steps(every: int) -> None:
    loop, heard = loop_of("coarse", Sampling(timing_every=every))
    loop.run(60)
    timed = [one for one in heard.finished if one.timed]
    assert sum(one.weight for one in timed) == 60
    assert {one.lost_slack_us for one in timed} == {SLACK}
    # The last one is followed by no launch, and so has none: where all are timed it is one of them.
    assert sum((one.lost_us or 0.0) * one.weight for one in timed) == LOST * (59 if every == 1 else 60)


@given(
    every=st.integers(0, 9),
    ratio=st.sampled_from([0.0, 0.3, 1.0]),
    coarse=st.booleans(),
    fence=st.sampled_from(["fine", "coarse", "off"]),
    runs=st.lists(st.integers(1, 30), min_size=1, max_size=4),
)
@settings(max_examples=60, deadline=None)
def test_every_step_is_finished_once_and_every_record_comes_back_once(
    every: int,
    ratio: float,
    coarse: bool,  # noqa: FBT001 - drawn
    fence: str,
    runs: list[int],
) -> None:
    loop, heard = loop_of(fence, Sampling(every, ratio, trace_coarse=coarse))
    at_first = sorted(records_of(loop))
    for steps in runs:
        loop.run(steps)
        assert sorted(records_of(loop)) == at_first
    assert len(set(at_first)) == IN_FLIGHT
    assert sorted(one.step for one in heard.finished) == list(range(sum(runs)))
    assert not loop.probe.unresolved
    traced = {one.step for one in heard.finished if one.traced}
    if coarse and fence == "coarse":
        assert traced == set(range(sum(runs)))
    assert all(one.timed for one in heard.finished if one.traced)
    kinds = {"fine": FenceKind.FINE, "coarse": FenceKind.COARSE, "off": FenceKind.DISABLED}
    assert {one.fence for one in heard.finished} == {kinds[fence]}
