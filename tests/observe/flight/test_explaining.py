"""What is said of one dump, and of several."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from sglang_fence.contract import FallbackReason, FenceKind, SharedReadEnds
from sglang_fence.observe.flight.comparing import APART_NS, compare
from sglang_fence.observe.flight.explaining import What, Who, stand
from sglang_fence.observe.flight.wording import paragraph, to_json
from tests.observe.flight.facts_of import STEP_NS, dump_of, launching, step_of

if TYPE_CHECKING:
    from sglang_fence.observe.flight.comparing import Comparison
    from sglang_fence.observe.flight.facts import Dump


def said(dump: Dump) -> list[str]:
    return paragraph(stand(dump))


def compared(*dumps: Dump) -> Comparison:
    return compare([stand(replace(dump, rank=str(rank), pid=100 + rank)) for rank, dump in enumerate(dumps)])


def test_a_wait_is_named_with_its_record_its_event_and_since_when() -> None:
    lines = said(dump_of(step_of(4), step_of(5), in_hand=4, awaited=5))
    assert "last completed: step 4 (its results are in the host's hands)" in lines
    assert "the host waits for the results of step 5, in torch.cuda.streams:Event.synchronize:230" in lines
    assert (
        "the schedule stream was told to wait for record 105 of step 5 (event 0xabc, IN_REPLAY), 499.988 ms ago"
        in lines
    )


def test_a_coarse_step_waits_for_all_of_its_forward_and_a_disabled_one_for_nothing() -> None:
    coarse = step_of(5, fence=FenceKind.COARSE, reason=FallbackReason.BACKEND_UNKNOWN, record=None, event=None)
    assert "the schedule stream was told to wait for all of the forward of step 5, 499.988 ms ago" in said(
        dump_of(coarse, in_hand=4),
    )
    off = step_of(5, fence=FenceKind.DISABLED)
    assert {wait.who for wait in stand(dump_of(off, in_hand=4)).waits} == {Who.FORWARD_STREAM}


def test_results_in_hand_release_what_lies_behind_them() -> None:
    standing = stand(dump_of(step_of(4), step_of(5), in_hand=5))
    assert (standing.waits, standing.idle, standing.unknown) == ((), True, ())


def test_timing_events_that_were_read_show_what_is_completed_as_well() -> None:
    standing = stand(dump_of(*map(step_of, range(6)), in_hand=2, timed=4))
    assert (standing.completed, standing.known_by) == (4, "timing events")
    assert {wait.step for wait in standing.waits} == {5}


def test_a_device_that_was_synchronised_is_done_with_all_before() -> None:
    standing = stand(dump_of(step_of(4), step_of(5), settled_ns=6 * STEP_NS))
    assert (standing.completed, standing.known_by, standing.idle) == (5, "synchronised", True)
    served_on = stand(dump_of(step_of(5), step_of(0, started_ns=7 * STEP_NS), settled_ns=6 * STEP_NS))
    assert {wait.step for wait in served_on.waits} == {0}
    assert served_on.completed is None


def test_what_cant_be_known_is_said() -> None:
    lines = said(dump_of(step_of(4), step_of(5)))
    assert "last completed: not known" in lines
    assert [line for line in lines if line.startswith("can't be known: which step was the last to be completed")]
    assert [line for line in lines if line.startswith("can't be known: which of the waits the device has let go")]
    nameless = said(dump_of(step_of(5, record=None, event=None), in_hand=4))
    assert [line for line in nameless if "which record a fine wait is bound to" in line]


def test_a_dump_without_steps_says_that_once_and_nothing_that_contradicts_it() -> None:
    heading, *lines = said(replace(dump_of(), stack=()))
    assert heading.endswith("0 steps kept")
    assert lines == ["no step had begun when it was written, so it says nothing of the fence"]
    assert stand(dump_of()).unknown == ()


def test_one_of_a_kind_is_no_plural() -> None:
    lines = said(dump_of(step_of(5, batch_size=1), in_hand=4))
    assert lines[0].endswith("1 step kept")
    assert any(", 1 request, fenced" in line for line in lines)


def test_steps_on_several_streams_are_over_one_by_one() -> None:
    standing = stand(dump_of(step_of(4), step_of(5), in_hand=5, in_order=False, awaited=4))
    assert {wait.step for wait in standing.waits if wait.what is What.RECORD} == {4}
    assert Who.FORWARD_STREAM not in {wait.who for wait in standing.waits}
    assert any("several streams" in one for one in standing.unknown)


def test_the_rank_that_completed_less_is_behind() -> None:
    steps = [step_of(number) for number in range(9)]
    comparison = compared(dump_of(*steps[:8], in_hand=6), dump_of(*steps[:7], in_hand=5), dump_of(*steps, in_hand=6))
    assert comparison.behind == ("rank 1",)
    assert comparison.why == "the last step that it is known to have completed is 5; the furthest is at 6"


def test_with_equal_results_the_rank_that_launched_less_is_behind() -> None:
    steps = [step_of(number) for number in range(8)]
    comparison = compared(dump_of(*steps, in_hand=6), dump_of(*steps[:7], launching(7), in_hand=6))
    assert comparison.behind == ("rank 1",)
    assert comparison.why == "its host has come to step 7, launching; the furthest has come to step 7, further on"


def test_ranks_that_are_equally_far_have_none_behind() -> None:
    comparison = compared(dump_of(step_of(5), in_hand=4), dump_of(step_of(5), in_hand=4))
    assert (comparison.behind, comparison.why) == ((), "no rank: all have come equally far")


def test_several_that_are_behind_are_told_in_the_plural() -> None:
    steps = [step_of(number) for number in range(9)]
    behind = dump_of(*steps[:7], in_hand=5)
    comparison = compared(behind, behind, dump_of(*steps, in_hand=6))
    assert comparison.behind == ("rank 0", "rank 1")
    assert comparison.why.startswith("the last step that they are known to have completed is 5")


def test_ranks_none_of_which_had_begun_are_told_as_such() -> None:
    comparison = compared(dump_of(), dump_of())
    assert (comparison.behind, comparison.unknown) == ((), ())
    assert comparison.why == "no rank: no step had begun on any of them"


def test_completion_that_isnt_known_of_one_rank_isnt_compared() -> None:
    comparison = compared(dump_of(step_of(4), step_of(5), in_hand=3), dump_of(step_of(4)))
    assert comparison.behind == ("rank 1",)
    assert comparison.why.endswith("(what is completed isn't known of every rank)")


def test_ranks_with_batches_of_their_own_arent_compared() -> None:
    comparison = compared(dump_of(step_of(4), step_of(5), in_hand=3), dump_of(step_of(4, batch_size=3), in_hand=3))
    assert comparison.behind == ()
    assert comparison.why.startswith("not known: under step 4, rank 0 ran decode of 8")


def test_what_limits_a_comparison_is_said() -> None:
    early = dump_of(step_of(5), in_hand=4)
    late = replace(dump_of(step_of(50), in_hand=49), wall_ns=early.wall_ns + APART_NS + 10**9)
    comparison = compared(early, late)
    assert comparison.behind == ("rank 0",)
    assert any("6 s apart" in one for one in comparison.unknown)
    assert any("no step is in all of the dumps" in one for one in comparison.unknown)


def test_of_several_dumps_of_a_process_the_last_one_counts() -> None:
    old, new = dump_of(step_of(3), in_hand=2), dump_of(step_of(5), in_hand=4)
    new = replace(new, wall_ns=new.wall_ns + 10**9)
    other = replace(dump_of(step_of(5), in_hand=4), rank="1", pid=8)
    comparison = compare([stand(new), stand(old), stand(other)])
    assert [one.dump for one in comparison.standings] == [new, other]
    assert (comparison.unknown, comparison.left_out) == ((), 1)
    assert to_json(comparison)["left_out"] == 1


def test_two_processes_that_say_they_are_one_rank_are_pointed_out() -> None:
    one = dump_of(step_of(5), in_hand=4)
    comparison = compare([stand(one), stand(replace(one, pid=8))])
    assert any("several say that they are it" in line for line in comparison.unknown)


@pytest.mark.parametrize("stage", ["launching", "launched", "at_barrier", "fenced", "unfenced"])
def test_each_stage_is_told(stage: str) -> None:
    step = {
        "launching": launching(5),
        "launched": replace(launching(5), launched_ns=6 * STEP_NS),
        "at_barrier": step_of(5, issued_ns=None),
        "fenced": step_of(5, resolved=SharedReadEnds.POST_REPLAY),
        "unfenced": replace(launching(5), entered_ns=6 * STEP_NS),
    }[stage]
    assert step.stage == stage
    assert any(line.startswith("newest step: 5") and stage.replace("_", " ") in line for line in said(dump_of(step)))
