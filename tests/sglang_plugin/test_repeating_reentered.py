"""The compiled class, called back from the Python code that it runs; and what it does with a signal's exceptions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from sglang_fence.sglang_plugin.repeating import Repeating
from sglang_fence.sglang_plugin.repeating_compiled import compiled_class
from tests.device.driver.fake_driver import build_fake_driver
from tests.sglang_plugin.scheduling import Batch, Runner, member
from tests.sglang_plugin.test_repeating import MAILBOX, World

if TYPE_CHECKING:
    from collections.abc import Callable

COMPILED = compiled_class()
needs_compiled = pytest.mark.skipif(COMPILED is None, reason="the compiled part wasn't built")
KINDS = [Repeating, pytest.param(COMPILED, marks=needs_compiled)]
HELPER = Path(__file__).parent / "helpers/reentering.py"
ROOT = Path(__file__).resolve().parents[2]
ORDERS = 37


@needs_compiled
def test_no_order_of_calls_ends_the_process(tmp_path: Path) -> None:
    driver = build_fake_driver(tmp_path)
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    done = subprocess.run(
        [sys.executable, HELPER, driver.path], capture_output=True, text=True, check=False, env=environ, timeout=120
    )
    said = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert len(said) == ORDERS, done.stderr
    assert {order: outcome for order, outcome in said.items() if outcome != "ok"} == {}


class StoppedError(BaseException):
    """What a signal's handler raises, in whatever code happens to run."""


def stop(*_: object) -> Any:  # noqa: ANN401 - nothing
    raise StoppedError


def by_worker(world: World) -> None:
    vars(world.scheduler)["model_worker"] = type("Worker", (), {"last_shared_read_runner": property(stop)})()


def by_switch(world: World) -> None:
    world.scheduler.steps.current.ask_forced(stop)


def by_demoting(world: World) -> None:
    world.scheduler.steps.current.demote = stop
    world.force()


def by_queue(world: World) -> None:
    queue: Any = type("Queue", (), {"__len__": stop})()
    world.scheduler.result_queue = queue


@pytest.mark.parametrize("repeating", KINDS)
@pytest.mark.parametrize("way", [by_worker, by_switch, by_demoting, by_queue])
def test_what_is_no_error_is_raised(repeating: type[Repeating], way: Callable[[World], None]) -> None:
    world = World(repeating, speculates=True)
    for _ in range(3):
        world.fine()
    way(world)
    with pytest.raises(StoppedError):
        world.fine()


@pytest.mark.parametrize("repeating", KINDS)
@pytest.mark.parametrize("at", ["before", "after", "barrier"])
def test_what_is_no_error_is_raised_around_a_draft_that_is_extended(repeating: type[Repeating], at: str) -> None:
    world = World(repeating, speculates=True)
    world.change_owner()
    for _ in range(3):
        world.round()
    looks = iter(("launch", "before", "after", "barrier"))

    def look(_: object) -> None:
        if next(looks, None) == at:
            stop()  # once

    world.draft.__class__ = type("Stopping", (Runner,), {MAILBOX: property(look, lambda *_: None)})
    with pytest.raises(StoppedError):
        world.round()


@pytest.mark.parametrize("repeating", KINDS)
def test_what_is_no_error_is_raised_where_an_extended_draft_is_told_of(repeating: type[Repeating]) -> None:
    world = World(repeating, speculates=True)
    world.change_owner()
    for _ in range(3):
        world.round()
    world.scheduler.steps.current.tell_extended = stop
    with pytest.raises(StoppedError):
        world.round_by_another_backend()


@needs_compiled
@pytest.mark.parametrize("where", ["settle", "fail"])
def test_what_is_no_error_is_raised_where_times_are_read(tmp_path: Path, where: str) -> None:
    driver, made = build_fake_driver(tmp_path), COMPILED
    assert made is not None
    world = World(made)
    current = world.scheduler.steps.current
    world.fine()
    call: dict[str, Any] = {"settle": print, "fail": print, where: stop}
    current.take_times((1, 2, 3), ((11, 12, 13),), (0.0, 0.0), call["settle"], call["fail"], str(driver.path))
    for event in (11, 12, 13):
        driver.reach(event, 1.0)
    current.arm(current.like, 1 << 40, 1)
    target = world.scheduler.target
    world.scheduler.step(
        "DECODE",
        lambda: world.scheduler.graph(target, "DECODE", "IN_REPLAY"),
        lambda: setattr(target, "shared_read_done_event", SimpleNamespace(cuda_event=9)),
    )
    assert current.pending == 1
    if where == "fail":
        driver.fail("elapsed", 700)
    with pytest.raises(StoppedError):
        current.drain(1)
    assert current.drain(1) == 0
    assert not current.times_taken


@pytest.mark.parametrize("repeating", KINDS)
@pytest.mark.parametrize("args", [(), (None,)])
def test_a_draft_extended_by_no_runner_is_left_to_the_general_hook(
    repeating: type[Repeating], args: tuple[object, ...]
) -> None:
    world, asked = World(repeating), []

    def general(original: Callable[..., object], *args: object) -> object:
        asked.append(args)
        return original(*args)

    world.unknown()  # of the steps that repeat, it extends no draft, and leaves the mailbox empty
    scheduler, target = world.scheduler, world.scheduler.target
    current = scheduler.steps.current
    extend = current.extend(general)
    scheduler.step(
        "DECODE",
        lambda: scheduler.graph(target, "DECODE", "UNKNOWN"),
        lambda: extend(lambda *_: None, *args),
    )
    assert asked == [args]
    assert not current.has_extended


class RefusingProgress:
    """Can't be told which results the host has."""

    @property
    def in_hand(self) -> int:
        return 0

    @in_hand.setter
    def in_hand(self, number: int) -> None:
        raise ValueError(number)


@pytest.mark.parametrize("repeating", KINDS)
def test_a_step_that_could_not_be_begun_is_recorded_once(repeating: type[Repeating]) -> None:
    world = World(repeating)
    for _ in range(3):
        world.fine()
    refusing: Any = RefusingProgress()
    world.scheduler.steps.current.progress = refusing
    world.fine()
    rows = world.scheduler.steps.current.rows
    assert sorted(row.step for row in rows if row.step > 0) == [1, 2]
    assert [facts.step for facts in world.recorded()] == [0, 1, 2, 3]


@pytest.mark.parametrize("repeating", KINDS)
def test_targets_that_take_more_or_less_are_left_to_the_general_hooks(repeating: type[Repeating]) -> None:
    asked: list[tuple[object, ...]] = []

    def general(original: Callable[..., object], *args: object) -> object:
        asked.append(args)
        return original(*args)

    world = World(repeating, speculates=True)
    world.fine()
    current, like = world.scheduler.steps.current, world.scheduler.steps.current.like
    assert like is not None
    launch, resolve, barrier = current.launch(general), current.resolve(general), current.barrier(general)
    launch(lambda *_: None)
    launch(lambda *_: None, world.scheduler)
    assert asked == [(), (world.scheduler,)]
    world.scheduler.cur_batch_for_debug = batch = Batch(member("DECODE"))
    launch(lambda *_: None, world.scheduler, batch)
    assert current.repeats
    runner = (like.graph, like.graph_backend, like.graph_mode)
    resolve(lambda *_: like.resolved, *runner, None)
    assert asked[2:] == [(*runner, None)]
    barrier(lambda *_: None, world.scheduler, None)
    assert asked[3:] == [(world.scheduler, None)]
