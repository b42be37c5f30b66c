"""Observers: a hook that nobody installed isn't called, one that raises is counted and dropped, the step goes on."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from sglang_fence.contract import ForwardMode
from sglang_fence.observe.observer import ERRORS_ALLOWED, HOOKS, Observer, Observers
from sglang_fence.observe.probe import StepProbe
from sglang_fence.observe.record import StepRecord

if TYPE_CHECKING:
    from collections.abc import Callable

ARGUMENTS: dict[str, tuple[object, ...]] = {
    "run_started": ({"device": "simulated"},),
    "step_started": (3,),
    "range_started": ("replay", 3),
    "range_ended": ("replay", 3),
    "barrier_applied": (StepRecord(None),),
    "step_finished": (StepRecord(None),),
    "step_traced": (object(),),
    "run_ended": (),
}


def call(observers: Observers, hook: str) -> None:
    for one in getattr(observers, hook):
        one(*ARGUMENTS[hook])


def overriding(hook: str, method: Callable[..., None]) -> type[Observer]:
    """Make an observer that overrides one hook and nothing else."""
    return type("Faulty", (Observer,), {hook: method})


def test_every_hook_is_listed() -> None:
    public = {name for name, hook in vars(Observer).items() if not name.startswith("_") and callable(hook)}
    assert set(HOOKS) == public == set(ARGUMENTS)


def test_hooks_do_nothing_by_default_and_are_not_even_called() -> None:
    observers = Observers([Observer()])
    assert [getattr(observers, hook) for hook in HOOKS] == [()] * len(HOOKS)
    for hook in HOOKS:
        getattr(Observer(), hook)(*ARGUMENTS[hook])


@pytest.mark.parametrize("hook", HOOKS)
def test_only_the_hook_that_is_overridden_is_called_with_all_it_takes(hook: str) -> None:
    heard: list[tuple[object, ...]] = []
    observers = Observers([Observer(), overriding(hook, lambda _, *args: heard.append(args))()])
    assert {name: len(getattr(observers, name)) for name in HOOKS} == {name: int(name == hook) for name in HOOKS}
    call(observers, hook)
    assert heard == [ARGUMENTS[hook]]


def fail(*_: object) -> None:
    msg = "out of order"
    raise RuntimeError(msg)


@pytest.mark.parametrize("hook", HOOKS)
def test_one_that_raises_is_counted_logged_once_with_its_traceback_and_dropped(
    hook: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    heard: list[str] = []
    healthy = overriding(hook, lambda *_: heard.append(hook))
    observers = Observers([healthy(), overriding(hook, fail)(), healthy()])
    for _ in range(ERRORS_ALLOWED + 3):
        call(observers, hook)
    assert observers.errors == {hook: ERRORS_ALLOWED}
    assert observers.dropped == 1
    assert len(heard) == 2 * (ERRORS_ALLOWED + 3)
    first, last = caplog.records
    assert (first.levelno, first.getMessage()) == (logging.ERROR, f"observer Faulty failed in {hook}; serving goes on")
    assert first.exc_info is not None
    assert first.exc_info[0] is RuntimeError
    assert first.exc_info[2] is not None
    assert last.getMessage() == f"observer Faulty failed {ERRORS_ALLOWED} times and is dropped"


def test_errors_of_one_observer_add_up_over_its_hooks() -> None:
    both: type[Observer] = type("Both", (Observer,), {"step_started": fail, "run_ended": fail})
    observers = Observers([both()])
    for _ in range(ERRORS_ALLOWED // 2):
        call(observers, "step_started")
        call(observers, "run_ended")
    assert observers.errors == {"step_started": 5, "run_ended": 5}
    assert (observers.dropped, observers.step_started, observers.run_ended) == (1, (), ())


def test_errors_of_two_observers_are_counted_apart(caplog: pytest.LogCaptureFixture) -> None:
    faulty = overriding("step_started", fail)
    observers = Observers([faulty(), faulty()])
    for _ in range(ERRORS_ALLOWED - 1):
        call(observers, "step_started")
    assert (observers.dropped, len(observers.step_started), len(caplog.records)) == (0, 2, 2)
    call(observers, "step_started")
    assert (observers.dropped, observers.step_started) == (2, ())


def test_an_interrupt_is_no_error_of_the_observer() -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    observers = Observers([overriding("step_started", interrupt)()])
    with pytest.raises(KeyboardInterrupt):
        call(observers, "step_started")
    assert observers.errors == {}


class Ranges(Observer):
    """Keeps what begins and ends."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, int]] = []

    def range_started(self, name: str, step: int) -> None:
        self.seen.append(("start", name, step))

    def range_ended(self, name: str, step: int) -> None:
        self.seen.append(("end", name, step))


def test_ranges_nest_and_are_balanced_when_the_body_raises() -> None:
    ranges = Ranges()
    probe = StepProbe(Observers([ranges]))
    probe.step_started(4, ForwardMode.DECODE, "native", 1, 1)
    with pytest.raises(KeyError), probe.range("replay"), probe.range("segment"):
        raise KeyError
    with probe.range("publish"):
        pass
    assert ranges.seen == [
        ("start", "replay", 4),
        ("start", "segment", 4),
        ("end", "segment", 4),
        ("end", "replay", 4),
        ("start", "publish", 4),
        ("end", "publish", 4),
    ]


def test_an_observer_that_is_dropped_inside_a_range_leaves_the_others_balanced() -> None:
    ranges = Ranges()
    observers = Observers([overriding("range_started", fail)(), ranges])
    probe = StepProbe(observers)
    for _ in range(ERRORS_ALLOWED + 1):
        with probe.range("replay"):
            pass
    assert observers.dropped == 1
    assert [kind for kind, _, _ in ranges.seen] == ["start", "end"] * (ERRORS_ALLOWED + 1)
