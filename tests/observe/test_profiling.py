"""Capture ranges: the profiler is told once to begin and once to end, at the right steps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_fence.observe.observer import Observers
from sglang_fence.observe.profiling import IN_FLIGHT, ProfiledSteps, StepRange


def told(first: int, last: int, steps: int, *, again: bool = False) -> list[tuple[str, int]]:
    """Run so many steps, twice where asked, and return what the profiler was told before which."""
    heard: list[tuple[str, int]] = []
    at = 0
    observer = ProfiledSteps(
        StepRange(first, last), lambda: heard.append(("start", at)), lambda: heard.append(("stop", at))
    )
    observers = Observers([observer])
    for _ in range(1 + again):
        for at in range(steps):
            for hook in observers.step_started:
                hook(at)
    at = steps
    for end in observers.run_ended:
        end()
    assert not observers.errors
    return heard


def test_it_begins_at_the_first_and_ends_when_the_last_has_run() -> None:
    assert told(3, 5, 20) == [("start", 3), ("stop", 5 + IN_FLIGHT + 1)]


def test_a_run_that_ends_before_ends_the_capture() -> None:
    assert told(3, 50, 20) == [("start", 3), ("stop", 20)]


def test_a_run_that_never_gets_there_tells_nothing() -> None:
    assert told(30, 50, 20) == []


@given(first=st.integers(0, 30), length=st.integers(0, 30), steps=st.integers(0, 60), again=st.booleans())
def test_it_is_told_in_pairs_and_no_more_than_once(first: int, length: int, steps: int, *, again: bool) -> None:
    heard = told(first, first + length, steps, again=again)
    assert [what for what, _ in heard] == (["start", "stop"] if steps > first else [])


@pytest.mark.parametrize("text", ["", "3", "3:", ":3", "5:3", "-1:3", "a:b", "1:2:3", "1.5:2"])
def test_what_is_no_range_of_steps_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="first and the last"):
        StepRange.parse(text)


def test_a_range_of_one_step() -> None:
    assert StepRange.parse("7:7") == (7, 7)
