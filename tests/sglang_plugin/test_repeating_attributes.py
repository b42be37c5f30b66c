"""What repeated steps are compared by is read as Python reads it, however SGLang's classes may have it."""

from __future__ import annotations

import sys
from types import DynamicClassAttribute
from typing import TYPE_CHECKING, Any

import pytest

from sglang_fence.contract import FenceKind
from tests.sglang_plugin.test_repeating import KINDS, MAILBOX, World, counting

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglang_fence.sglang_plugin.repeating import Repeating

READ = ("result_queue", "_war_barrier_enabled", "model_worker", MAILBOX, "attn_backend")
DECOY = object()
ACTIONS = ["force", "switch_barrier", "drain_queue", "stale", "replace_backend"]
"""What comes between steps that repeat."""


def become(thing: Any, **own: Any) -> None:  # noqa: ANN401 - the scheduler, or a runner
    """Give it a class of its own with these attributes."""
    thing.__class__ = type(type(thing).__name__, (type(thing),), own)


def on_the_object(_: Any) -> None:  # noqa: ANN401 - as above
    """As in SGLang."""


def with_a_default(thing: Any) -> None:  # noqa: ANN401 - as above
    """The class has one, which isn't used."""
    become(thing, **{name: DECOY for name in READ if name in vars(thing)})


def as_properties(thing: Any) -> None:  # noqa: ANN401 - as above
    """The class asks elsewhere; what lies in the object under the name isn't used."""
    names = [name for name in READ if name in vars(thing)]
    for name in names:
        vars(thing)["hidden " + name] = vars(thing)[name]
        vars(thing)[name] = DECOY

    def reading(name: str) -> property:
        return property(
            lambda self: vars(self)["hidden " + name],
            lambda self, value: vars(self).__setitem__("hidden " + name, value),
        )

    become(thing, **{name: reading(name) for name in names})


def by_looking_everywhere(thing: Any) -> None:  # noqa: ANN401 - as above
    """The class decides on every look."""
    names = {name for name in READ if name in vars(thing)}
    hidden = {name: vars(thing)[name] for name in names}
    vars(thing).update(dict.fromkeys(names, DECOY))
    usual: Any = type(thing)

    def look(self: object, name: str) -> object:
        return hidden[name] if name in names else usual.__getattribute__(self, name)

    def put(self: object, name: str, value: object) -> None:
        if name in names:
            hidden[name] = value
        else:
            usual.__setattr__(self, name, value)

    become(thing, __getattribute__=look, __setattr__=put)


def by_looking_where_there_is_none(thing: Any) -> None:  # noqa: ANN401 - as above
    """The object hasn't got it until it is set, and the class answers meanwhile."""
    answers = {MAILBOX: vars(thing).pop(MAILBOX)} if MAILBOX in vars(thing) else {}
    become(thing, __getattr__=lambda _, name: answers[name])


WAYS = [on_the_object, with_a_default, as_properties, by_looking_everywhere, by_looking_where_there_is_none]


def made(repeating: type[Repeating] | None, way: Callable[[Any], None]) -> World:
    world = World(repeating)
    way(world.scheduler)
    way(world.scheduler.target)
    return world


@pytest.mark.parametrize("repeating", KINDS)
@pytest.mark.parametrize("way", WAYS)
def test_what_is_counted_is_what_the_general_hooks_alone_count(
    repeating: type[Repeating], way: Callable[[Any], None]
) -> None:
    world, general = made(repeating, way), made(None, way)
    for now in ["fine", *(one for action in ACTIONS for one in (action, *["fine"] * 3, action, *["fine"] * 3))]:
        world.act(now)
        general.act(now)
        assert world.scheduler.counted() == general.scheduler.counted()
    for fact in ("stale_publications", "unoverlapped_launches", "owner_changes", "errors"):
        assert getattr(world.scheduler.ledger.health, fact) == getattr(general.scheduler.ledger.health, fact)


@pytest.mark.parametrize("repeating", KINDS)
@pytest.mark.parametrize("way", WAYS)
def test_steps_repeat(repeating: type[Repeating], way: Callable[[Any], None]) -> None:
    world = made(repeating, way)
    looked = counting(world)
    for _ in range(20):
        world.fine()
    assert looked.times == 1


def of_the_scheduler(world: World) -> Any:  # noqa: ANN401 - the scheduler
    return world.scheduler


def of_the_runner(world: World) -> Any:  # noqa: ANN401 - the runner
    return world.scheduler.target


@pytest.mark.parametrize("repeating", KINDS)
@pytest.mark.parametrize("thing_of", [of_the_scheduler, of_the_runner])
@pytest.mark.parametrize("then", ACTIONS)
def test_an_object_with_another_dictionary_is_read_anew(
    repeating: type[Repeating], thing_of: Callable[[World], Any], then: str
) -> None:
    world, general = World(repeating), World(None)
    for one in (world, general):
        for _ in range(3):
            one.fine()
        thing = thing_of(one)
        thing.__dict__ = dict(vars(thing))
        for now in (then, "fine", "fine"):
            one.act(now)
    assert world.scheduler.counted() == general.scheduler.counted()
    for fact in ("stale_publications", "unoverlapped_launches"):
        assert getattr(world.scheduler.ledger.health, fact) == getattr(general.scheduler.ledger.health, fact)


@pytest.mark.parametrize("repeating", KINDS)
def test_a_property_that_its_class_denies_is_asked_all_the_same(repeating: type[Repeating]) -> None:
    world = World(repeating)
    hidden: dict[str, bool] = {"on": True}  # what lies in the object under the name stays as it was
    # A property of this kind raises AttributeError where the class itself is asked for it.
    become(world.scheduler, _war_barrier_enabled=DynamicClassAttribute(lambda _: hidden["on"]))
    for hidden["on"] in (True, True, False):
        world.fine()
    kinds = {kind.fence: cell.steps for kind, cell in world.scheduler.ledger.cells.items()}
    assert kinds == {FenceKind.FINE: 2, FenceKind.DISABLED: 1}


def held(thing: object) -> tuple[int, int]:
    """Return how many references there are to it, and to its dictionary."""
    return sys.getrefcount(thing), sys.getrefcount(vars(thing))


@pytest.mark.parametrize("repeating", KINDS)
def test_what_steps_are_compared_with_is_let_go_of(repeating: type[Repeating]) -> None:
    world = World(repeating, recorded=False)
    looked = counting(world)
    target, scheduler = world.scheduler.target, world.scheduler
    counts: list[object] = []
    for _ in range(4):
        for _ in range(5):
            world.fine()
        scheduler.steps.current.arm(None)
        counts.append((held(target), held(scheduler), sys.getrefcount(type(target))))
    assert looked.times == 4
    assert counts == [counts[0]] * 4


@pytest.mark.parametrize("repeating", KINDS)
def test_another_scheduler_is_asked_itself(repeating: type[Repeating]) -> None:
    world, other = World(repeating), World(None)
    for _ in range(3):
        world.fine()
    steps = world.scheduler.steps.current.number
    vars(other.scheduler)["result_queue"] = []  # nothing to overlap with
    launch = world.scheduler._launch
    launch(lambda *_: None, other.scheduler, world.scheduler.cur_batch_for_debug)
    assert world.scheduler.steps.current.number == steps + 1
    assert not world.scheduler.steps.current.repeats
