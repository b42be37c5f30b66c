"""The recording observer: keeps what it got, in values of its own, bounded if asked, and knows if ranges balance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_fence.contract import FenceKind, ForwardMode, SharedReadEnds
from sglang_fence.observe.observer import HOOKS, Observer, Observers
from sglang_fence.observe.record import Phase, StepRecord
from sglang_fence.testing import FrozenStepRecord, RecordingObserver

if TYPE_CHECKING:
    from collections.abc import Callable

ENDS = SharedReadEnds.IN_REPLAY
PHASE = Phase(ForwardMode.DECODE, "target", "native", ENDS, ENDS, None)


def a_record() -> StepRecord:
    record = StepRecord(None)
    record.step = 7
    record.fence = FenceKind.FINE
    record.slack_us = 12.5
    record.phases.append(PHASE)
    return record


# A trace is kept as it came, so anything will do for one.
ARGUMENTS: dict[str, tuple[object, ...]] = {
    "run_started": ({"device": "simulated"},),
    "step_started": (3,),
    "range_started": ("replay", 3),
    "range_ended": ("replay", 3),
    "barrier_applied": (a_record(),),
    "step_finished": (a_record(),),
    "step_traced": (object(),),
    "run_ended": (),
}


def test_it_listens_to_every_hook_and_keeps_each_call_in_order() -> None:
    recorded = RecordingObserver()
    observers = Observers([recorded])
    for hook in HOOKS:
        (call,) = getattr(observers, hook)
        call(*ARGUMENTS[hook])
    assert [call.hook for call in recorded.calls] == list(HOOKS)
    for hook in set(HOOKS) - {"barrier_applied", "step_finished"}:
        assert recorded.of(hook) == [ARGUMENTS[hook]]
    assert recorded.applied == recorded.finished == [FrozenStepRecord.of(a_record())]
    assert observers.errors == {}


@pytest.mark.parametrize("hook", ["barrier_applied", "step_finished"])
def test_a_record_that_is_reused_does_not_change_what_was_kept(hook: str) -> None:
    recorded = RecordingObserver()
    record = a_record()
    getattr(recorded, hook)(record)
    record.step = 8
    record.slack_us = None
    record.phases.clear()
    (kept,) = recorded.applied + recorded.finished
    assert (kept.step, kept.slack_us, kept.phases, kept.fence) == (7, 12.5, [PHASE], FenceKind.FINE)


def test_every_field_of_a_record_is_kept_but_what_is_the_probes() -> None:
    record = a_record()
    frozen = FrozenStepRecord.of(record)
    for name in StepRecord.__slots__:
        value = getattr(record, name)
        assert getattr(frozen, name) == (value if isinstance(value, list | str | int | float | tuple) else None), name
    assert frozen.timers is None


def test_what_is_the_probes_is_not_kept_alive() -> None:
    record = a_record()
    object.__setattr__(record, "timers", object())
    assert FrozenStepRecord.of(record).timers is None


@pytest.mark.parametrize("change", [lambda kept: setattr(kept, "step", 1), lambda kept: delattr(kept, "step")])
def test_what_was_kept_cannot_be_changed(change: Callable[[FrozenStepRecord], None]) -> None:
    kept = FrozenStepRecord.of(a_record())
    with pytest.raises(AttributeError, match="step of a FrozenStepRecord can't be"):
        change(kept)
    assert kept.step == 7


def test_copies_are_equal_by_value_and_say_what_they_are() -> None:
    record = a_record()
    one, other = FrozenStepRecord.of(record), FrozenStepRecord.of(record)
    record.slack_us = 13.0
    assert one == other
    assert one is not other
    assert one != FrozenStepRecord.of(record)
    assert one != record
    assert "step=7" in repr(one)
    assert "slack_us=12.5" in repr(one)
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)


def test_an_empty_copy_cannot_be_made() -> None:
    with pytest.raises(TypeError, match=r"FrozenStepRecord\.of\(record\)"):
        FrozenStepRecord(None)


@pytest.mark.parametrize("limit", [0, 1, 5, None])
def test_no_more_calls_are_kept_than_asked_and_the_others_are_counted(limit: int | None) -> None:
    recorded = RecordingObserver(limit)
    for step in range(8):
        recorded.step_started(step)
    kept = 8 if limit is None else limit
    assert recorded.of("step_started") == [(step,) for step in range(8 - kept, 8)]
    assert recorded.forgotten == 8 - kept


def test_a_negative_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="non-negative"):
        RecordingObserver(-1)


def play(recorded: Observer, calls: str) -> None:
    """Lower case starts a range of that name, upper case ends it."""
    for step, name in enumerate(calls):
        if name.islower():
            recorded.range_started(name, step)
        else:
            recorded.range_ended(name.lower(), step)


@pytest.mark.parametrize(
    ("calls", "words"),
    [
        ("abBA", None),
        ("aAbB", None),
        ("", None),
        ("ab", "ranges that never ended: a, b"),
        ("abB", "ranges that never ended: a"),
        ("A", "the range 'a' ended in step 0, but none was open"),
        ("abAB", "the range 'a' ended in step 2, but 'b' is the innermost"),
        ("abABaA", "the range 'a' ended in step 2"),
    ],
)
@pytest.mark.parametrize("limit", [None, 1])
def test_ranges_that_do_not_balance_are_told_also_when_calls_are_forgotten(
    calls: str, words: str | None, limit: int | None
) -> None:
    recorded = RecordingObserver(limit)
    play(recorded, calls)
    if words is None:
        recorded.assert_balanced()
        assert recorded.open_ranges == ()
    else:
        with pytest.raises(AssertionError, match=words):
            recorded.assert_balanced()


def test_ranges_come_with_their_step_and_depth() -> None:
    recorded = RecordingObserver()
    play(recorded, "abBcCA")
    assert recorded.ranges == [("a", 0, 0), ("b", 1, 1), ("c", 3, 1)]
    play(recorded, "d")
    assert recorded.open_ranges == ("d",)


@given(st.recursive(st.just(""), lambda inner: st.lists(inner, max_size=3).map(lambda parts: f"r{''.join(parts)}R")))
def test_whatever_is_nested_balances_and_one_end_less_does_not(calls: str) -> None:
    recorded = RecordingObserver(limit=4)
    play(recorded, calls)
    recorded.assert_balanced()
    if calls:
        cut = RecordingObserver()
        play(cut, calls[:-1])
        with pytest.raises(AssertionError):
            cut.assert_balanced()
