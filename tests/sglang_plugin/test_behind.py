"""The start behind a timed coarse step, where the step that starts repeats what was before, and is only counted."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_fence.contract import FenceKind
from sglang_fence.observe.probe import IN_FLIGHT
from sglang_fence.observe.sampling import TIMED, Sampler
from sglang_fence.observe.timing import StepTimers
from sglang_fence.sglang_plugin.repeating import Repeating
from tests.sglang_plugin.test_device_times import NEVER, REPEATING, Preparing
from tests.sglang_plugin.test_repeating import KINDS, World, counting
from tests.sglang_plugin.test_repeating_reentered import StoppedError

if TYPE_CHECKING:
    from collections.abc import Callable

EVERY = 4


def run(steps: str, every: int, repeating: type[Repeating] | None) -> tuple[object, int]:
    """Return what was told, and how many starts stood alone.

    D decodes, E extends, F decodes and is forced coarse, U decodes by a graph that declares nothing, S waits for the
    device, I pauses.
    """
    scheduler = Preparing(every=every, repeating=repeating)
    probe, current = scheduler.steps.probe, scheduler.steps.current
    if not current.compiled:  # say so: else all that are timed are looked at in full
        current.times_taken = True
    behind: list[int] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(probe, "_now", scheduler.device.host_ns)
        # No forward's start is timed but behind coarse steps that are.
        patched.setattr(Sampler, "asks", lambda _, step: 0 if step % every else TIMED)
        patched.setattr(Sampler, "next_start", lambda *_: NEVER)
        take = probe.start_behind

        def start_behind(step: int, forward: object) -> None:
            behind.append(step)
            take(step, forward)

        patched.setattr(probe, "start_behind", start_behind)
        for step in steps:
            scheduler.border.forced_on = step == "F"
            match step:
                case "I":
                    scheduler.finish()
                case "S":
                    scheduler.device.synchronize()
                case "U":
                    scheduler.publishes = False
                    scheduler.decode()
                    scheduler.publishes = True
                case "E":
                    scheduler.extend()
                case _:
                    scheduler.decode()
        scheduler.finish()
    health = scheduler.ledger.health
    assert not health.errors
    assert not health.unresolved
    assert len(probe._reader._free) == IN_FLIGHT  # all records are back
    cells = {
        kind: (
            cell.steps,
            cell.lost_us,
            cell.lost_slack_us,
            [] if kind.fence is FenceKind.FINE else (cell.slack.counts, cell.wait.counts),  # nobody takes fine ones
        )
        for kind, cell in scheduler.ledger.cells.items()
    }
    return (cells, {last: (gap.count, gap.sum_us) for last, gap in scheduler.ledger.gaps.items()}), len(behind)


@given(st.text("DDDDDEEFIISU", max_size=30), st.sampled_from([1, 2, 3, 4]))
def test_what_is_told_is_the_same_where_the_start_behind_a_timed_coarse_step_stands_alone(
    steps: str, every: int
) -> None:
    for kind in REPEATING:
        assert run(steps, every, kind)[0] == run(steps, every, None)[0]


@pytest.mark.parametrize(
    ("steps", "every", "alone"),
    [
        ("DIDEDDD", 1, 1),
        ("DIDEDEED", 1, 2),
        ("DIDEDIEED", 1, 2),
        ("DIDEDEDEDEEEDIEEEE", 1, 4),
        ("DIDEDEIDEDEDIEDEDDD", 1, 5),  # records are used again
        ("DDDDEDD", 4, 1),
        ("DDDDEED", 4, 0),  # its start is seen of the second extend, which is looked at in full
        ("DDDDFDD", 4, 0),
        ("DDDDIEIDDD", 4, 0),
        ("UIUUUU", 1, 0),  # what a coarse step lost is taken by those that look at all of it
        ("UUUUUUUU", 4, 1),
    ],
)
def test_a_repeated_step_behind_a_timed_coarse_one_is_not_looked_at_in_full(steps: str, every: int, alone: int) -> None:
    told, behind = run(steps, every, Repeating)
    assert behind == alone
    assert told == run(steps, every, None)[0]


@pytest.mark.parametrize("kind", REPEATING)
def test_a_start_is_taken_once(kind: type[Repeating]) -> None:
    scheduler = Preparing(every=EVERY, repeating=kind)
    in_full: list[bool] = []
    for step in "DDDDEDED":
        (scheduler.extend if step == "E" else scheduler.decode)()
        in_full.append(scheduler.steps.probe.timing)
    assert in_full[EVERY] is True
    assert in_full[EVERY + 2] is False


def an_error(scheduler: Preparing) -> None:
    scheduler.ledger.health.errors["run_batch"] += 1


def traces(scheduler: Preparing) -> None:
    scheduler.steps.probe.sampling.trace_ratio = 0.5


@pytest.mark.parametrize("kind", REPEATING)
@pytest.mark.parametrize("happens", [an_error, traces])
def test_none_stands_alone_where_each_step_is_looked_at(
    monkeypatch: pytest.MonkeyPatch, kind: type[Repeating], happens: Callable[[Preparing], None]
) -> None:
    scheduler = Preparing(every=EVERY, repeating=kind)
    monkeypatch.setattr(scheduler.steps.probe, "start_behind", stopped)
    for _ in range(EVERY):
        scheduler.decode()
    happens(scheduler)
    scheduler.extend()
    scheduler.decode()
    assert scheduler.counted().total() == EVERY + 2 - len(scheduler.steps.probe._reader.pending)


@pytest.mark.parametrize("repeating", KINDS)
def test_the_inputs_of_the_next_repeated_step_are_told_once_before_they_are_made(repeating: type[Repeating]) -> None:
    world, said = World(repeating), list[str]()
    hook = world.scheduler.steps.current.inputs(stopped)
    world.fine()
    world.scheduler.steps.current.tell_inputs = lambda: said.append("told")

    def launch() -> None:
        for _ in range(2):
            hook(lambda: said.append("made"))

    world.scheduler.step("DECODE", launch, world._graph)
    assert said == ["told", "made", "made"]
    assert world.scheduler.steps.current.tell_inputs is None


def stopped(*_: object) -> Any:  # noqa: ANN401 - nothing
    raise StoppedError


@pytest.mark.parametrize("repeating", KINDS)
def test_a_step_whose_inputs_nobody_saw_is_looked_at_and_tells_of_no_others(repeating: type[Repeating]) -> None:
    world, told = World(repeating), list[int]()
    current: Any = world.scheduler.steps.current
    world.fine()
    looked = counting(world)
    current.tell_inputs = lambda: told.append(current.number)
    world.scheduler.step("DECODE", world._graph)
    world.fine()
    assert (looked.times, told, current.tell_inputs) == (0, [], None)  # it was begun again, in the midst of it
    assert world.scheduler.counted().total() == 3
    assert [facts.step for facts in world.recorded()] == [0, 1, 2]


def general(world: World) -> None:
    world.scheduler.step("EXTEND", world.scheduler.forward_inputs)


def idle(world: World) -> None:
    world.scheduler.idle()


@pytest.mark.parametrize("repeating", KINDS)
@pytest.mark.parametrize("between", [general, idle])
def test_what_comes_between_is_followed_by_no_start(
    repeating: type[Repeating], between: Callable[[World], None]
) -> None:
    world, told = World(repeating), list[int]()
    world.fine()
    world.scheduler.steps.current.tell_inputs = lambda: told.append(1)
    between(world)
    world.fine()
    world.fine()
    assert told == []


@pytest.mark.parametrize("repeating", KINDS)
def test_a_signal_that_stops_it_comes_through(repeating: type[Repeating]) -> None:
    world, made = World(repeating), list[int]()
    hook = world.scheduler.steps.current.inputs(bool)
    world.fine()
    world.scheduler.steps.current.tell_inputs = stopped
    with pytest.raises(StoppedError):
        world.scheduler.step("DECODE", lambda: hook(lambda: made.append(1)))
    assert made == []


@pytest.mark.parametrize("kind", REPEATING)
def test_a_start_that_cannot_be_taken_is_counted_and_serving_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: type[Repeating]
) -> None:
    scheduler = Preparing(every=EVERY, repeating=kind)
    monkeypatch.setattr(scheduler.steps.probe, "start_behind", stopped_by_an_error)
    with caplog.at_level(logging.ERROR):
        for extends in (False,) * EVERY + (True, False, False):
            (scheduler.extend if extends else scheduler.decode)()
    scheduler.finish()
    assert scheduler.ledger.health.errors == {"resolve_forward_inputs": 1}
    assert scheduler.counted().total() == EVERY + 3
    assert [record.message for record in caplog.records] == [
        "sglang-fence: a repeated step can't be followed; serving goes on"
    ]


def stopped_by_an_error(*_: object) -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize("kind", REPEATING)
def test_no_record_is_lost_where_a_start_cannot_be_recorded(
    monkeypatch: pytest.MonkeyPatch, kind: type[Repeating]
) -> None:
    scheduler = Preparing(every=EVERY, repeating=kind)
    for extends in (False,) * EVERY + (True,):
        (scheduler.extend if extends else scheduler.decode)()
    with monkeypatch.context() as refusing:
        refusing.setattr(StepTimers, "record_start", stopped_by_an_error)
        scheduler.decode()
    scheduler.decode()
    scheduler.finish()
    assert scheduler.ledger.health.errors == {"resolve_forward_inputs": 1}
    assert len(scheduler.steps.probe._reader._free) == IN_FLIGHT
