"""Which steps are shown: the typical one by all that is known of it, the extremes of all steps, drawn or not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sglang_fence.cli.report.choosing import chosen, typical
from sglang_fence.cli.report.page import page
from tests.cli.report.rows import row, run_of

durations = st.floats(0, 1e6)


def test_the_typical_step_is_next_to_the_median_of_the_most_frequent_mode() -> None:
    steps = [row(at, slack=float(slack)) for at, slack in enumerate((1, 50, 60, 70, 1000))]
    steps += [row(9, slack=60.0, mode="extend")]
    assert typical(steps) == steps[2]
    assert typical(steps, "extend") == steps[5]
    assert typical([]) is None


def test_a_step_of_another_mode_stands_in_for_none() -> None:
    assert typical([row(0, slack=5.0)], "no such mode") is None


def test_the_typical_step_is_near_the_median_in_wait_and_forward_as_well() -> None:
    steps = [
        row(0, slack=10.0, wait=900.0, forward=100.0),
        row(1, slack=10.0, wait=5.0, forward=9000.0),
        row(2, slack=10.1, wait=5.1, forward=101.0),
        row(3, slack=9.0, wait=6.0, forward=102.0),
        row(4, slack=11.0, wait=4.0, forward=99.0),
    ]
    assert typical(steps) == steps[2]


def test_what_is_not_known_of_a_step_speaks_against_it() -> None:
    steps = [row(0, slack=5.0), row(1, slack=5.0, wait=1.0, forward=9.0), row(2, slack=5.0)]
    assert typical(steps) == steps[1]


def test_of_equals_the_one_in_the_middle_of_the_run_is_typical() -> None:
    steps = [row(at, slack=163.0, wait=102.0, forward=176.0) for at in range(11)]
    assert typical(steps) == steps[5]
    assert typical([row(20, slack=1.0), *steps[:4]]) == steps[1]


@given(st.lists(st.tuples(durations, durations, durations), min_size=1, max_size=30), st.floats(0.5, 1e3))
def test_no_unit_weighs_more_than_another(rows: list[tuple[float, float, float]], factor: float) -> None:
    steps = [row(at, slack=slack, wait=wait, forward=end) for at, (slack, wait, end) in enumerate(rows)]
    found = typical(steps)
    assert found in steps
    # A power of two changes no float's digits, so that equals stay equals.
    two = 2.0 ** round(factor).bit_length()
    scaled = [row(at, slack=slack, wait=wait * two, forward=end) for at, (slack, wait, end) in enumerate(rows)]
    again = typical(scaled)
    assert found is not None
    assert again is not None
    assert found.index == again.index


def test_where_no_fence_was_the_typical_step_goes_by_its_forward() -> None:
    steps = [row(at, fence="disabled", forward=float(us)) for at, us in enumerate((5, 90, 7))]
    (only,) = chosen(run_of(steps))
    assert (only.title, only.step) == ("A typical step", steps[2])


def test_the_best_has_the_most_slack_and_the_worst_lost_the_most() -> None:
    steps = [row(0, slack=5.0), row(1, slack=9.0), row(2, slack=6.0)]
    steps += [row(3, fine=False, wait=7.0, lost=2.0), row(4, fine=False, wait=1.0, lost=3.0)]
    found = chosen(run_of(steps))
    assert [(pick.title, pick.step.index) for pick in found] == [
        ("A typical step", 2),
        ("The best step", 1),
        ("The worst step", 4),
    ]
    assert found[2].why == "Of all timed steps none lost more to its fence."


def test_a_step_that_is_two_of_them_is_shown_once() -> None:
    only = chosen(run_of([row(0, slack=5.0, wait=1.0)]))
    assert [pick.title for pick in only] == ["A typical step, and the best step, and the worst step"]


def test_a_worse_step_that_cant_be_drawn_is_named_beside_the_one_that_can() -> None:
    steps = [row(0, fine=False, wait=1.0, lost=2.0), row(1, fine=False, wait=1.0, lost=77.0)]
    worst = chosen(run_of(steps, steps[:1]))[-1]
    assert worst.step == steps[0]
    assert "Of the 1 step that can be drawn" in worst.why
    assert "Of all timed ones step 1 did, with 77.0 µs; it can't be drawn." in worst.why


def test_a_worst_step_without_any_picture_is_told_without_one() -> None:
    steps = [row(0, slack=3.0), row(1, fine=False, wait=1.0, lost=77.0)]
    run = run_of(steps, steps[:1])
    worst = chosen(run)[-1]
    assert (worst.step, worst.drawable) == (steps[1], False)
    made = page(run)
    assert "The worst step: step 1" in made
    assert "It can&#39;t be drawn." in made
