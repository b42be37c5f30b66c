"""What repeated steps, and what it takes to begin one again, add to the plugin's own account of host time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_fence.sglang_plugin import answering, guard
from sglang_fence.sglang_plugin import repeating as python_class
from sglang_fence.sglang_plugin.repeating_metered import COST_SAMPLE, is_metered
from sglang_fence.sglang_plugin.targets import TARGETS
from tests.sglang_plugin import scheduling
from tests.sglang_plugin.test_repeating import KINDS, World

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglang_fence.sglang_plugin.repeating import Repeating


@pytest.mark.parametrize("repeating", KINDS)
def test_the_cost_of_repeated_steps_is_accounted_for(repeating: type[Repeating]) -> None:
    world = World(repeating)
    for _ in range(61 * 3):
        world.fine()
    world.scheduler.idle()
    cost = world.scheduler.ledger.health.cost_ns
    assert {hook for hook, ns in cost.items() if ns} >= {"run_batch", "apply_war_barrier"}


@pytest.mark.parametrize("repeating", KINDS)
def test_the_cost_of_repeated_rounds_is_accounted_for(repeating: type[Repeating]) -> None:
    world = World(repeating, speculates=True)
    world.change_owner()
    for _ in range(61 * 3):
        world.round()
    world.scheduler.idle()
    cost = world.scheduler.ledger.health.cost_ns
    assert {"decode_resolve", "draft_extend_execute"} <= {hook for hook, ns in cost.items() if ns}


@pytest.mark.parametrize("repeating", KINDS)
def test_all_that_was_measured_is_on_the_account_once_it_idles(repeating: type[Repeating]) -> None:
    world = World(repeating)
    world.fine()
    cost, measured = world.scheduler.ledger.health.cost_ns, list[bool]()
    for _ in range(20 * COST_SAMPLE):
        before = cost["run_batch"]
        world.fine()
        world.scheduler.idle()
        measured.append(cost["run_batch"] > before)
        assert cost["run_batch"] % COST_SAMPLE == 0
    assert measured == [is_metered(step) for step in range(1, 20 * COST_SAMPLE + 1)]


@given(first=st.integers(0, 1 << 40), rhythm=st.integers(1, 5_000))
def test_of_the_steps_of_any_rhythm_the_same_share_is_measured(first: int, rhythm: int) -> None:
    steps = range(first, first + 4_000 * rhythm, rhythm)
    assert sum(map(is_metered, steps)) == pytest.approx(len(steps) / COST_SAMPLE, rel=0.25)


def forced(world: World) -> None:
    """A step that seems to be a repetition until its barrier."""
    world.force()
    world.fine()


def an_eager_batch(world: World) -> None:
    """A step that seems to be a repetition until an eager runner has it."""
    world.scheduler.step("DECODE", lambda: world.scheduler.eager(world.scheduler.target, "DECODE"))


def no_barrier(world: World) -> None:
    """A step that seems to be one until the next is launched."""
    world.scheduler.step("DECODE", barrier=False)
    world.scheduler.step("DECODE", barrier=False)


@pytest.mark.parametrize("repeating", KINDS)
@pytest.mark.parametrize("now", [forced, no_barrier, an_eager_batch])
def test_what_it_costs_to_begin_again_is_accounted_for_once(
    monkeypatch: pytest.MonkeyPatch, repeating: type[Repeating], now: Callable[[World], None]
) -> None:
    clock = [1]
    for module in (guard, answering, python_class):
        monkeypatch.setattr(module, "perf_counter_ns", lambda: clock[0])
    world = World(repeating)
    scheduler, health = world.scheduler, world.scheduler.ledger.health
    world.fine()
    for key, name in {"run_batch": "_launch", "apply_war_barrier": "_barrier"}.items():
        handler = scheduler.run_batch_hook if key == "run_batch" else scheduler.barrier_hook
        hook = guard.Hook(next(one for one in TARGETS if one.key == key), handler, health, guard.Meter())
        in_front = getattr(scheduler.steps.current, "launch" if key == "run_batch" else "barrier")
        monkeypatch.setattr(scheduler, name, in_front(hook.around()))
    execute = next(one for one in TARGETS if one.key == "eager_execute")
    hooked = guard.Hook(execute, scheduler.execute_hook, health, guard.Meter()).around()
    monkeypatch.setattr(scheduling, "around", lambda _, original, *args: hooked(original, *args))
    begin, begun = scheduler.watch._start, list[object]()

    def slow(*args: Any) -> None:  # noqa: ANN401 - whatever it takes
        begun.append(args)
        clock[0] += 1000
        begin(*args)

    monkeypatch.setattr(scheduler.watch, "_start", slow)
    health.cost_ns.clear()
    world.fine()
    now(world)
    assert begun
    assert health.cost_ns.total() == 1000 * len(begun)


@pytest.mark.parametrize("repeating", KINDS)
def test_what_it_costs_to_begin_again_is_accounted_for(repeating: type[Repeating]) -> None:
    world = World(repeating)
    world.fine()
    cost = world.scheduler.ledger.health.cost_ns
    before = cost["run_batch"]
    world.fine()
    assert cost["run_batch"] == before
    world.scheduler.border.forced_on = True
    world.fine()
    assert cost["run_batch"] > before
