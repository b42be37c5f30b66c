"""Calls the compiled class back from wherever it runs Python code, and prints how each of these orders ended.

Each runs in a process of its own, since what is at stake is that process's life: ``NAME ok``, ``NAME`` and an
exception, or ``NAME died`` and the signal.
"""

from __future__ import annotations

import gc
import os
import sys
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from sglang_fence.observe.ledger import Cell, Durations, Route
from sglang_fence.sglang_plugin.repeating_compiled import compiled_class

if TYPE_CHECKING:
    from collections.abc import Callable

MADE: Any = compiled_class()
DRIVER = sys.argv[1]
PARTS = (
    "owner",
    "backend",
    "batch_mode",
    "graph",
    "graph_backend",
    "graph_mode",
    "resolved",
    "cell",
    "route",
    "extender",
    "extend_backend",
    "extend_mode",
)
BEYOND = 1 << 40


class Like:
    """Has the parts of a likeness, of which all is asked for."""

    extends, sole, coarse = True, False, False

    def __init__(self, **parts: object) -> None:
        vars(self).update({name: SimpleNamespace(steps=0, shared_read_done_event=None) for name in PARTS})
        self.extender: Any = None
        vars(self).update(parts)
        owner, backend = vars(self)["owner"], vars(self)["backend"]
        if not hasattr(owner, "attn_backend"):
            owner.attn_backend = backend


def extended(**attributes: object) -> Like:
    """Return a likeness whose step is one of EAGLE's rounds; some ``attributes`` of its extender are given."""
    like = Like()
    like.coarse, like.extender = True, SimpleNamespace()
    made: dict[str, object] = {
        "model_runner": vars(like)["owner"],
        "draft_extend_attn_backend": vars(like)["extend_backend"],
        "forward_mode": vars(like)["extend_mode"],
    }
    vars(like.extender).update(made | attributes)
    return like


class Event:
    """As PyTorch's."""

    cuda_event = 9


def calling(answer: object, call: Callable[[], object], **named: object) -> type:
    """Return a class whose attribute, called as ``named`` says, calls back before it gives the ``answer``."""

    def look(_: object) -> object:
        call()
        return answer

    return type("Calling", (SimpleNamespace,), {name: property(look) for name in named})


class World:
    """One compiled object, and what SGLang would call it with."""

    def __init__(self, like: Any = None, **parts: object) -> None:  # noqa: ANN401 - a Like
        self.current: Any = MADE({}, 0)
        self.current.demote = self.current.tell_extended = lambda *_: None
        self.current.ask_forced(lambda: False)
        like = like or Like(**parts)
        self.like: Any = like
        self.arm()
        self.scheduler = SimpleNamespace(
            result_queue=[object()],
            _war_barrier_enabled=True,
            model_worker=SimpleNamespace(last_shared_read_runner=like.owner),
        )
        self.batch: Any = SimpleNamespace(forward_mode=like.batch_mode, reqs=[object()], extend_num_tokens=None)
        self.event: object = Event()

    def arm(self, every: int = 0) -> None:
        self.current.arm(self.like, BEYOND, every)

    def arm_anew(self) -> None:
        """Take the parts of the likeness as they are by now."""
        self.disarm()
        self.arm()

    def disarm(self) -> None:
        self.current.arm(None)

    def take_times(self, places: int, settle: Any = print, fail: Any = None) -> None:  # noqa: ANN401 - any callable
        events = tuple((10 + place, 40 + place, 70 + place) for place in range(places))
        self.current.take_times((1, 2, 3), events, (0.0, 0.0), settle, fail or (lambda *_: None), DRIVER)

    def time(self, places: int = 4) -> None:
        self.take_times(places)
        self.arm(1)

    def launch(self) -> None:
        self.current.launch(general)(lambda *_: None, self.scheduler, self.batch)

    def inputs(self, tell: Callable[[], object]) -> None:
        self.current.tell_inputs = tell
        self.current.inputs(general)(lambda *_: None)

    def barrier(self) -> None:
        self.current.barrier(general)(lambda *_: None, self.scheduler)

    def step(self) -> None:
        like = self.like
        self.launch()
        resolve = self.current.resolve(general)
        resolve(lambda *_: like.resolved, like.graph, like.graph_backend, like.graph_mode)
        if like.extender is None:
            like.owner.shared_read_done_event = self.event
        else:
            self.current.extend(general)(lambda *_: None, like.extender, self.batch)
        self.barrier()
        like.owner.shared_read_done_event = None


def general(original: Callable[..., object], *args: object, **kwargs: object) -> object:
    return original(*args, **kwargs)


class Dying:
    """Calls back when it is let go of."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call

    def __del__(self) -> None:
        self._call()


def queue_disarms(world: World) -> None:
    class Queue(list[object]):
        def __len__(self) -> int:
            world.disarm()
            return 1

    world.scheduler.result_queue = Queue()
    world.step()


def mode_disarms(world: World) -> None:
    mode = world.like.batch_mode
    world.batch = calling(mode, world.disarm, forward_mode=1)(reqs=[1], extend_num_tokens=None)
    world.step()


def requests_disarm(world: World) -> None:
    world.current.keep(4)
    mode = world.like.batch_mode
    world.batch = calling([1], world.disarm, reqs=1)(forward_mode=mode, extend_num_tokens=None)
    world.step()


def requests_arm_another(world: World) -> None:
    world.current.keep(4)
    mode, other = world.like.batch_mode, Like()
    world.batch = calling([1], lambda: world.current.arm(other, BEYOND), reqs=1)(forward_mode=mode, extend_num_tokens=7)
    world.launch()
    if world.current.repeats or world.current.kept():
        msg = "a step that was begun the general way is kept here, too"
        raise AssertionError(msg)


def requests_keep_no_rows(world: World) -> None:
    world.current.keep(4)
    mode, keep = world.like.batch_mode, world.current.keep
    world.batch = calling([1], lambda: keep(0), reqs=1)(forward_mode=mode, extend_num_tokens=None)
    world.step()


def number_below_any(world: World) -> None:
    world.current.keep(8)
    world.current.number = -(10**9)
    world.step()


def number_beyond_any(world: World) -> None:
    world.current.keep(8)
    world.current.number = (1 << 63) - 1
    world.step()


def due_below_any(world: World) -> None:
    world.current.arm(world.like, -(1 << 63))
    world.step()
    if world.like.cell.steps:
        msg = "a step was counted that is due"
        raise AssertionError(msg)


def nothing_demotes(world: World) -> None:
    del world.current.demote
    world.launch()
    world.barrier()


def no_progress_is_kept(world: World) -> None:
    del world.current.progress
    world.step()


def never_initialised(world: World) -> None:
    world.current = MADE.__new__(MADE)
    world.arm()
    world.step()
    world.current.repeats = True
    world.barrier()


def worker_disarms(world: World) -> None:
    world.scheduler.model_worker = calling(world.like.owner, world.disarm, last_shared_read_runner=1)()
    world.step()


def switch_disarms(world: World) -> None:
    def forced() -> bool:
        world.disarm()
        return False

    world.current.ask_forced(forced)
    world.step()


def cell_disarms(_: World) -> None:
    worlds: list[World] = []

    class Cell:
        steps = 0

        def __setattr__(self, name: str, value: object) -> None:
            worlds[0].disarm()

    worlds.append(World(cell=Cell()))
    worlds[0].step()


def one_of_two_is_counted_in_place(_: World) -> None:
    for parts in ({"cell": Cell()}, {"route": Route([])}, {"cell": Cell(), "route": Route([])}):
        world = World(**parts)
        world.step()
        world.step()
        if (world.like.cell.steps, world.like.route.steps) != (2, 2):
            msg = f"two steps were counted as {world.like.cell.steps} and {world.like.route.steps}"
            raise AssertionError(msg)


def event_takes_no_times(world: World) -> None:
    world.time()
    world.event = calling(9, lambda: world.take_times(0), cuda_event=1)()
    world.step()


def event_takes_times_anew(world: World) -> None:
    world.time()
    world.event = calling(9, lambda: world.take_times(2), cuda_event=1)()
    for _ in range(5):
        world.step()


def event_disarms(world: World) -> None:
    world.time()
    world.event = calling(9, world.disarm, cuda_event=1)()
    world.step()


def failing_takes_times_anew(world: World) -> None:
    world.take_times(4, fail=lambda *_: world.take_times(2))
    world.arm(1)
    world.event = object()
    world.step()
    world.step()


def rows_die_keeping(world: World) -> None:
    world.like.dying = Dying(lambda: world.current.keep(5))
    world.current.keep(4)
    world.step()
    world.disarm()
    world.like = Like()
    world.current.keep(2)
    world.current.kept()


def likeness_dies_taking_times(world: World) -> None:
    world.like.dying = Dying(lambda: world.take_times(3))
    world.time(1)
    world.step()
    world.like = Like()
    world.scheduler.model_worker.last_shared_read_runner = world.like.owner
    world.batch.forward_mode = world.like.batch_mode
    world.arm(1)
    world.step()
    world.step()


def rounds_extender(**named: object) -> World:
    """Return a world of rounds whose extender disarms as it is asked for what is ``named``."""
    like: Any = extended()
    world = World(like)
    attributes = vars(like.extender)
    ((name, _),) = named.items()
    answer = attributes.pop(name)
    like.extender = calling(answer, world.disarm, **named)(**attributes)
    world.arm_anew()
    return world


def steps_disarmed(world: World) -> None:
    world.step()
    if world.current.like is not None:
        msg = "the extender wasn't looked at"
        raise AssertionError(msg)
    world.step()


def extender_disarms_by_runner(_: World) -> None:
    steps_disarmed(rounds_extender(model_runner=1))


def extender_disarms_by_backend(_: World) -> None:
    steps_disarmed(rounds_extender(draft_extend_attn_backend=1))


def extender_disarms_by_mode(_: World) -> None:
    steps_disarmed(rounds_extender(forward_mode=1))


def extender_arms_another(_: World) -> None:
    like: Any = extended()
    world = World(like)
    other: Any = extended()
    other.owner, other.extender = like.owner, like.extender
    mode = vars(like.extender).pop("forward_mode")
    looking = calling(mode, lambda: world.current.arm(other, BEYOND), forward_mode=1)
    like.extender = other.extender = looking(**vars(like.extender))
    world.arm_anew()
    world.step()
    if like.cell.steps or other.cell.steps:
        msg = "a step was counted that began as another than it ended"
        raise AssertionError(msg)


def extender_begins_the_step_again(_: World) -> None:
    told: list[object] = []
    like: Any = extended()
    world = World(like)
    mode = vars(like.extender).pop("forward_mode")
    looking = calling(mode, lambda: setattr(world.current, "repeats", False), forward_mode=1)
    like.extender = looking(**vars(like.extender))
    world.current.tell_extended = told.append
    world.arm_anew()
    world.step()
    if told != [like.extender]:
        msg = f"the general way was told of {told}"
        raise AssertionError(msg)


def nobody_is_told_of_a_draft(_: World) -> None:
    world = World(extended(forward_mode=None))
    del world.current.tell_extended
    world.step()


def telling_of_a_draft_disarms(_: World) -> None:
    world = World(extended(forward_mode=None))
    world.current.tell_extended = lambda _: world.disarm()
    world.step()


def rounds_are_counted(_: World) -> None:
    world = World(extended())
    world.current.keep(4)
    for _round in range(3):
        world.step()
    if world.like.cell.steps != 3:
        msg = f"{world.like.cell.steps} rounds were counted"
        raise AssertionError(msg)


def no_times_are_taken_of_a_coarse_step(_: World) -> None:
    like = Like()
    like.coarse = True
    world = World(like)
    world.event = None
    world.time()
    world.step()
    if (world.current.pending, world.current.times_taken, world.like.cell.steps) != (0, True, 1):
        msg = "there is no marker behind which it could be timed"
        raise AssertionError(msg)


def part_dies_arming(world: World) -> None:
    other = Like()
    world.like.route.dying = Dying(lambda: world.current.arm(other, BEYOND))
    world.like = None
    world.disarm()
    if world.current.like is not other:
        msg = "what was armed last isn't what counts"
        raise AssertionError(msg)
    world.like = other
    world.scheduler.model_worker.last_shared_read_runner = world.like.owner
    world.batch.forward_mode = world.like.batch_mode
    world.step()


def part_dies_arming_a_coarse_one(world: World) -> None:
    other = Like()
    other.coarse = True
    world.like.route.dying = Dying(lambda: world.current.arm(other, BEYOND))
    world.like = None
    world.disarm()
    world.like, world.event = other, None
    world.scheduler.model_worker.last_shared_read_runner = world.like.owner
    world.batch.forward_mode = world.like.batch_mode
    world.step()
    if world.like.cell.steps != 1:
        msg = "what was armed last is compared as what was armed before it"
        raise AssertionError(msg)


def inputs_disarm(world: World) -> None:
    world.launch()
    world.inputs(world.disarm)
    world.barrier()
    if world.like.cell.steps or world.current.tell_inputs is not None:
        msg = "a step was counted that is like nothing any more, or is told of twice"
        raise AssertionError(msg)


def inputs_run_another_step(world: World) -> None:
    world.launch()
    world.inputs(world.step)
    world.barrier()


def inputs_replace_who_is_told(world: World) -> None:
    told: list[int] = []

    def replace() -> None:
        told.append(0)
        world.current.tell_inputs = lambda: told.append(1)
        gc.collect()

    world.launch()
    world.inputs(replace)
    world.current.inputs(general)(lambda *_: None)
    if told != [0, 1]:
        msg = f"told {told}"
        raise AssertionError(msg)


def who_is_told_of_inputs_dies(world: World) -> None:
    no_call: Any = Dying(lambda: setattr(world.current, "tell_inputs", Dying(world.step)))
    world.launch()
    world.current.tell_inputs = Dying(world.disarm)
    del world.current.tell_inputs
    world.current.tell_inputs = no_call
    del no_call
    world.current.inputs(general)(lambda *_: None)
    del world.current.tell_inputs


def histogram_is_made_anew_while_it_is_read(_: World) -> None:
    durations: Any = Durations()
    base: Any = Durations.__mro__[1]
    lists: list[list[int]] = [[] for _ in range(300)]  # so that none is left over, and each is made anew
    for buckets, anew in ((64, 1), (1, 64)) * 50:
        base.__init__(durations, buckets)
        gc.disable()
        cycle: Any = Dying(partial(base.__init__, durations, anew))
        cycle.cycle = cycle
        del cycle
        gc.set_threshold(1)
        gc.enable()
        lists.append(durations.counts)
    if any(count for counts in lists for count in counts):
        msg = "nothing was counted in"
        raise AssertionError(msg)


ORDERS: list[Callable[[World], None]] = [
    made
    for name, made in list(globals().items())
    if getattr(made, "__module__", None) == __name__
    and name not in {"calling", "general", "extended", "rounds_extender", "steps_disarmed"}
    and not isinstance(made, type)
]


def main() -> None:
    for order in ORDERS:
        child = os.fork()
        if child == 0:
            try:
                order(World())
                said = "ok"
            except BaseException as error:  # noqa: BLE001 - whatever it is is told
                said = repr(error)
            os.write(1, f"{order.__name__} {said}\n".encode())
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            os.write(1, f"{order.__name__} died {status}\n".encode())


if __name__ == "__main__":
    main()
