"""The loop declares, publishes and fences each end as the runtime does, with the runtime's own parts."""

from __future__ import annotations

import pytest

from sglang_fence.bench.overlap import OverlapLoop, StepShape
from sglang_fence.bench.spinning import simulated
from sglang_fence.contract import SharedReadEnds
from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.observe.summary import Summary

STEPS = 6
SHAPE = StepShape(reads_us=10, compute_us=50, schedule_us=5, after_us=5, prepare_us=3)
ENDS = [SharedReadEnds.PRE_REPLAY, SharedReadEnds.IN_REPLAY, SharedReadEnds.POST_REPLAY]


@pytest.mark.parametrize("fence", ["fine", "coarse", "off"])
@pytest.mark.parametrize("ends", ENDS)
def test_a_step_resolves_to_what_it_declares(ends: SharedReadEnds, fence: str) -> None:
    device, spinner = simulated(SHAPE)
    summary = Summary()
    loop = OverlapLoop(device, spinner, SHAPE, fence, [summary], ends=ends)
    loop.run(STEPS)
    decodes = summary.by_mode()["decode"]
    assert decodes.resolved == {ends.name: STEPS}
    assert decodes.fence == {"disabled" if fence == "off" else fence: STEPS}
    assert not decodes.downgrades
    assert (loop._graph.in_graph_metadata_prep_done is not None) == (ends is SharedReadEnds.IN_REPLAY)


def test_without_external_events_a_marker_is_missing_and_the_step_says_so() -> None:
    summary = Summary()
    device = SimulatedDevice(external_events=False, check_hazards=False)
    OverlapLoop(device, lambda _: lambda: None, SHAPE, "fine", [summary]).run(STEPS)
    decodes = summary.by_mode()["decode"]
    assert decodes.resolved == {"POST_REPLAY": STEPS}
    assert sum(decodes.downgrades.values()) == STEPS


def test_loops_that_are_compared_share_their_streams() -> None:
    device, spinner = simulated(SHAPE)
    streams = device.Stream("schedule"), device.Stream("forward")
    loops = [OverlapLoop(device, spinner, SHAPE, fence, streams=streams) for fence in ("fine", "coarse")]
    assert [(loop.schedule, loop.forward) for loop in loops] == [streams, streams]
