"""Steps that repeat the one before: in front of the general hooks, nothing that is counted may come out otherwise."""

from __future__ import annotations

import gc
import weakref
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_fence.contract import FallbackReason, FenceKind, SharedReadEnds
from sglang_fence.observe.flight.ring import FlightRing
from sglang_fence.observe.flight.snapshot import steps_of
from sglang_fence.observe.observer import Observer
from sglang_fence.observe.quick_rows import RowKeeper
from sglang_fence.sglang_plugin.repeating import Repeating
from sglang_fence.sglang_plugin.repeating_compiled import compiled_class
from sglang_fence.sglang_plugin.session import Session
from sglang_fence.sglang_plugin.targets import LOOPS
from tests.sglang_plugin.scheduling import (
    Algorithm,
    Backend,
    Batch,
    Border,
    Runner,
    Scheduler,
    SnapshotBackend,
    bound,
    member,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglang_fence.observe.flight.facts import StepFacts

COMPILED = compiled_class()
KINDS = [
    Repeating,
    pytest.param(COMPILED, marks=pytest.mark.skipif(COMPILED is None, reason="the compiled part wasn't built")),
]


MAILBOX = "shared_read_done_event"


class StoppedError(Exception):
    """Raised by a launch, on purpose."""


class World:
    """A scheduler that overlaps, and what may happen to it."""

    def __init__(
        self,
        repeating: type[Repeating] | None,
        *,
        recorded: bool = True,
        speculates: bool = False,
        declares: bool = True,
    ) -> None:
        self.border = Border(draft_extend_declares=declares)
        self.ring = FlightRing(8) if recorded else None
        self.scheduler = Scheduler(border=self.border, ring=self.ring, repeating=repeating)
        self.scheduler.watch.forward_stream = self.scheduler.forward_stream
        self.scheduler.result_queue, self.scheduler.last_batch = [object()], Batch(member("DECODE"))
        self.draft = Runner(Backend(DRAFT_EXTEND="POST_REPLAY"), is_draft_worker=True)  # of an older kind, that is
        if speculates:  # else there is one runner, which owns every last shared read
            self.scheduler.target.spec_algorithm = self.draft.spec_algorithm = Algorithm("EAGLE")
        self._speculates = speculates
        self._looks: list[list[tuple[object, ...]]] = []

    def act(self, action: str) -> None:
        """Do what the action says."""
        getattr(self, action)()

    def fine(self) -> None:
        target = self.scheduler.target
        self.scheduler.step(
            "DECODE", self.scheduler.forward_inputs, lambda: self.scheduler.graph(target, "DECODE", "IN_REPLAY")
        )

    def verify(self) -> None:
        target = self.scheduler.target
        self.scheduler.step("TARGET_VERIFY", lambda: self.scheduler.graph(target, "TARGET_VERIFY", "IN_REPLAY"))

    def downgraded(self) -> None:
        target = self.scheduler.target
        self.scheduler.step("DECODE", lambda: self.scheduler.graph(target, "DECODE", "POST_REPLAY"))

    def unknown(self) -> None:
        target = self.scheduler.target
        self.scheduler.step("DECODE", lambda: self.scheduler.graph(target, "DECODE", "UNKNOWN"))

    def two_graphs(self) -> None:
        scheduler, target = self.scheduler, self.scheduler.target
        scheduler.step(
            "DECODE",
            lambda: scheduler.graph(target, "DECODE", "IN_REPLAY"),
            lambda: scheduler.graph(target, "TARGET_VERIFY", "IN_REPLAY"),
        )

    def graph_then_draft(self) -> None:
        scheduler, target = self.scheduler, self.scheduler.target
        scheduler.step(
            "DECODE",
            lambda: scheduler.graph(target, "DECODE", "IN_REPLAY"),
            lambda: scheduler.draft_extend(self.draft, publishes=False),
        )

    def same_graph_twice(self) -> None:
        self.scheduler.step("DECODE", self._graph, self._graph)

    def graph_of_another_mode(self) -> None:
        target = self.scheduler.target
        self.scheduler.step("DECODE", lambda: self.scheduler.graph(target, "TARGET_VERIFY", "IN_REPLAY"))

    def batch_of_another_mode(self) -> None:
        self.scheduler.step("TARGET_VERIFY", self._graph)

    def taken_away(self) -> None:
        self.scheduler.step("DECODE", self._graph, lambda: setattr(self.scheduler.target, MAILBOX, None))

    def published_unseen(self) -> None:
        self.scheduler.step("DECODE", lambda: setattr(self.scheduler.target, MAILBOX, object()))

    def round(self) -> None:
        """One of EAGLE's, whose draft-extend declares nothing."""
        self._round()

    def round_that_publishes(self) -> None:
        self._round(publishes=True)

    def round_of_another_graph(self) -> None:
        draft = self.draft
        other = SimpleNamespace(
            model_runner=draft, forward_mode=draft.forward_mode, draft_extend_attn_backend=draft.attn_backend
        )
        self._round(graph=other)

    def round_by_another_backend(self) -> None:
        draft = self.draft
        before, other = draft.draft_extend_attn_backend, SnapshotBackend()
        self._round(inside=lambda: setattr(draft, "draft_extend_attn_backend", other))
        draft.draft_extend_attn_backend = before

    def round_above_another_runner(self) -> None:
        draft = self.draft
        self._round(inside=lambda: setattr(draft, "model_runner", self.scheduler.target))
        draft.model_runner = draft

    def round_in_another_mode(self) -> None:
        draft = self.draft
        before = draft.forward_mode
        self._round(inside=lambda: setattr(draft, "forward_mode", member("DRAFT_EXTEND")))
        draft.forward_mode = before

    def round_that_verifies_twice(self) -> None:
        scheduler = self.scheduler
        self._round(inside=lambda: scheduler.graph(scheduler.target, "TARGET_VERIFY", "IN_REPLAY"))

    def round_of_two_drafts(self) -> None:
        self._round(lambda: self.scheduler.draft_extend(self.draft, publishes=False))

    def round_whose_barrier_comes_early(self) -> None:
        scheduler = self.scheduler
        self._round(inside=lambda: scheduler._barrier(type(scheduler).apply_barrier, scheduler))

    def round_without_verify(self) -> None:
        self.scheduler.step("DECODE", lambda: self.scheduler.draft_extend(self.draft, publishes=False))

    def round_without_draft(self) -> None:
        scheduler = self.scheduler
        scheduler.step("DECODE", lambda: scheduler.graph(scheduler.target, "TARGET_VERIFY", "IN_REPLAY"))

    def round_with_an_eager_draft(self) -> None:
        scheduler = self.scheduler
        scheduler.step(
            "DECODE",
            lambda: scheduler.graph(scheduler.target, "TARGET_VERIFY", "IN_REPLAY"),
            lambda: scheduler.eager(self.draft, "DRAFT_EXTEND_V2"),
        )

    def round_behind_a_publication(self) -> None:
        scheduler = self.scheduler
        scheduler.step(
            "DECODE",
            lambda: scheduler.graph(scheduler.target, "TARGET_VERIFY", "IN_REPLAY"),
            lambda: setattr(self.draft, MAILBOX, object()),
            lambda: scheduler.draft_extend(self.draft, publishes=False),
        )

    def round_that_finds_a_publication(self) -> None:
        self._round(lambda: setattr(self.draft, MAILBOX, object()))

    def round_the_wrong_way_round(self) -> None:
        scheduler = self.scheduler
        scheduler.step(
            "DECODE",
            lambda: scheduler.draft_extend(self.draft, publishes=False),
            lambda: scheduler.graph(scheduler.target, "TARGET_VERIFY", "IN_REPLAY"),
        )

    def round_that_is_looked_at(self) -> None:
        scheduler = self.scheduler
        scheduler.step(
            "DECODE",
            self._look,
            lambda: scheduler.graph(scheduler.target, "TARGET_VERIFY", "IN_REPLAY"),
            self._look,
            lambda: scheduler.draft_extend(self.draft, publishes=False),
            self._look,
        )

    def round_that_raises(self) -> None:
        def stop() -> None:
            raise StoppedError

        with pytest.raises(StoppedError):
            self._round(inside=stop)

    def _round(self, *more: Callable[[], object], publishes: bool = False, **how: Any) -> None:  # noqa: ANN401 - as draft_extend()
        scheduler = self.scheduler
        scheduler.step(
            "DECODE",
            lambda: scheduler.graph(scheduler.target, "TARGET_VERIFY", "IN_REPLAY"),
            lambda: scheduler.draft_extend(self.draft, publishes=publishes, **how),
            *more,
        )

    def eager(self) -> None:
        self.scheduler.step("DECODE", lambda: self.scheduler.eager(self.scheduler.target, "DECODE"))

    def prefill(self) -> None:
        self.scheduler.step("EXTEND", lambda: self.scheduler.eager(self.scheduler.target, "EXTEND", publishes=True))

    def silent(self) -> None:
        self.scheduler.step("DECODE")

    def no_barrier(self) -> None:
        scheduler = self.scheduler
        scheduler.step("DECODE", lambda: scheduler.graph(scheduler.target, "DECODE", "IN_REPLAY"), barrier=False)

    def unseen_launch(self) -> None:
        self.scheduler.step("DECODE", seen=False)

    def nested(self) -> None:
        scheduler = self.scheduler
        scheduler.step("DECODE", lambda: scheduler.step("DECODE", self._graph, barrier=False))

    def _graph(self) -> None:
        self.scheduler.graph(self.scheduler.target, "DECODE", "IN_REPLAY")

    def stale(self) -> None:
        self.scheduler.target.shared_read_done_event = object()
        self.silent()

    def force(self) -> None:
        self.border.forced_on = not self.border.forced_on

    def switch_barrier(self) -> None:
        scheduler: Any = self.scheduler
        scheduler._war_barrier_enabled = not scheduler._war_barrier_enabled

    def change_owner(self) -> None:
        scheduler = self.scheduler
        if not self._speculates:
            return
        scheduler.owner = self.draft if scheduler.owner is scheduler.target else scheduler.target

    def unseen_by_another_owner(self) -> None:
        self.change_owner()
        self.scheduler.target.shared_read_done_event = object()
        self.published_unseen()
        self.change_owner()

    def change_backend(self) -> None:
        target = self.scheduler.target
        target.attn_backend = Backend() if isinstance(target.attn_backend, SnapshotBackend) else SnapshotBackend()

    def look_behind_a_change_of_backend(self) -> None:
        self.change_backend()
        self.round_that_is_looked_at()
        self.change_backend()

    def raise_and_change_backend(self) -> None:
        self.raising()
        self.change_backend()
        self.fine()
        self.change_backend()

    def replace_backend(self) -> None:
        """By one that is as the one before, and is another."""
        self.draft.attn_backend = Backend()
        self.scheduler.target.attn_backend = Backend()

    def drain_queue(self) -> None:
        self.scheduler.result_queue = [] if self.scheduler.result_queue else [object()]

    def lengthen_queue(self) -> None:
        self.scheduler.result_queue = [object()] * 60

    def idle(self) -> None:
        self.scheduler.idle()

    def raising(self) -> None:
        def stop() -> None:
            raise StoppedError

        with pytest.raises(StoppedError):
            self.scheduler.step("DECODE", self._graph, stop)

    def outcome(self) -> tuple[object, ...]:
        """Return all that anybody could be told of it."""
        ledger = self.scheduler.ledger
        health = ledger.health
        return (
            self.scheduler.steps.current.number,
            {
                kind: (cell.steps, [(route.phases, route.steps) for route in cell.routes])
                for kind, cell in ledger.cells.items()
                if cell.steps
            },
            dict(ledger.phases),
            dict(health.stale_publications),
            dict(health.owner_changes),
            dict(health.unoverlapped_launches),
            {hook: count for hook, count in health.errors.items() if count},
            self.scheduler.steps.probe.progress.in_hand,
            [told(facts) for facts in self.recorded()],
            self._looks,
        )

    def _look(self) -> None:
        """See what the flight recorder has in the midst of a step."""
        self._looks.append([told(facts) for facts in self.recorded()])

    def recorded(self) -> list[StepFacts]:
        """Return what the flight recorder has."""
        if self.ring is None:
            return []
        return list(steps_of(self.ring.all_records(), self.scheduler.steps.probe.newest))[-8:]


def told(facts: StepFacts) -> tuple[object, ...]:
    """Return what a dump says of a step, but for times and identities; of those, which are there."""
    return (
        facts.step,
        facts.mode,
        facts.backend,
        facts.batch_size,
        facts.tokens,
        facts.phases,
        facts.declared,
        facts.resolved,
        facts.downgrade,
        facts.fence,
        facts.reason,
        facts.record,
        facts.event is None,
        facts.entered_ns is None,
        facts.issued_ns is None,
    )


ACTIONS = [name for name in vars(World) if not name.startswith("_") and name not in {"act", "outcome", "recorded"}]
USUAL = ("fine", "round", "unknown")
RUNS = st.lists(st.tuples(st.sampled_from(USUAL), st.integers(0, 3), st.sampled_from(ACTIONS)), max_size=10)
"""So many steps of a kind that repeats, then something."""


@pytest.mark.parametrize("repeating", KINDS)
@given(runs=RUNS, speculates=st.booleans())
@settings(max_examples=600, deadline=None)
def test_what_is_counted_is_what_the_general_hooks_alone_count(
    repeating: type[Repeating], runs: list[tuple[str, int, str]], *, speculates: bool
) -> None:
    quick, general = World(repeating, speculates=speculates), World(None, speculates=speculates)
    for world in (quick, general):
        if speculates:
            world.change_owner()  # to the draft runner, as under EAGLE
        for usual, times, action in runs:
            for _ in range(times):
                world.act(usual)
            world.act(action)
    assert quick.outcome() == general.outcome()


@pytest.mark.parametrize("repeating", KINDS)
def test_a_draft_that_publishes_before_its_replay_counts_as_in_the_general_way(repeating: type[Repeating]) -> None:
    quick, general = (World(kind, speculates=True, declares=False) for kind in (repeating, None))
    for world in (quick, general):
        world.change_owner()
        for action in ("round", "round", "round_that_publishes", "round"):
            world.act(action)
    assert quick.outcome() == general.outcome()


@pytest.mark.parametrize("repeating", KINDS)
@pytest.mark.parametrize("usual", USUAL)
@pytest.mark.parametrize("action", ACTIONS)
def test_whatever_comes_between_repeated_steps_counts_as_in_the_general_way(
    repeating: type[Repeating], usual: str, action: str
) -> None:
    speculates = usual == "round"
    quick, general = World(repeating, speculates=speculates), World(None, speculates=speculates)
    for world in (quick, general):
        world.change_owner()  # to the draft runner, as under EAGLE
        for one in (usual, usual, usual, action, usual, usual, action, action, usual, action, usual, usual):
            world.act(one)
    assert quick.outcome() == general.outcome()


@pytest.mark.parametrize("repeating", [None, *KINDS])
def test_a_draft_that_publishes_behind_some_that_did_not_is_fine(repeating: type[Repeating] | None) -> None:
    world = World(repeating, speculates=True)
    world.change_owner()
    for action in ("round", "round", "round_that_publishes", "round"):
        world.act(action)
    assert world.scheduler.counted() == {
        ("decode", FenceKind.COARSE, FallbackReason.BACKEND_UNKNOWN, SharedReadEnds.UNKNOWN): 3,
        ("decode", FenceKind.FINE, None, SharedReadEnds.POST_REPLAY): 1,
    }


@dataclass
class Looked:
    """How often the general hooks were asked."""

    times: int = 0


def counting(world: World) -> Looked:
    """Count the general beginnings of steps."""
    looked, watch = Looked(), world.scheduler.watch
    begin = watch.begin

    def counted(*args: Any) -> None:  # noqa: ANN401 - whatever it takes
        looked.times += 1
        begin(*args)

    vars(watch)["begin"] = counted
    return looked


@pytest.mark.parametrize("repeating", KINDS)
def test_the_general_hooks_see_the_first_step_and_no_repetition(repeating: type[Repeating]) -> None:
    world = World(repeating)
    looked = counting(world)
    for _ in range(100):
        world.fine()
    assert looked.times == 1
    assert world.scheduler.steps.current.number == 99
    assert [facts.step for facts in world.recorded()] == list(range(92, 100))


@pytest.mark.parametrize("repeating", KINDS)
@pytest.mark.parametrize("usual", ["round", "unknown"])
def test_the_general_hooks_see_one_coarse_step_and_no_repetition(repeating: type[Repeating], usual: str) -> None:
    world = World(repeating, speculates=usual == "round")
    world.change_owner()
    looked = counting(world)
    for _ in range(100):
        world.act(usual)
    assert looked.times == 1
    assert world.scheduler.counted() == {
        ("decode", FenceKind.COARSE, FallbackReason.BACKEND_UNKNOWN, SharedReadEnds.UNKNOWN): 100
    }
    assert [facts.reason for facts in world.recorded()] == [FallbackReason.BACKEND_UNKNOWN] * 8


def to_another_graph(world: World) -> Callable[[], object]:
    scheduler, target = world.scheduler, world.scheduler.target
    other = SimpleNamespace(model_runner=target)

    def replay() -> None:
        scheduler._resolve(lambda *_: member("IN_REPLAY"), other, target.attn_backend, member("DECODE"))
        target.shared_read_done_event = object()

    return lambda: scheduler.step("DECODE", replay)


def to_another_backend(world: World) -> Callable[[], object]:
    world.scheduler.target.attn_backend = Backend()
    return world.fine


def to_another_mode(world: World) -> Callable[[], object]:
    return world.batch_of_another_mode


def to_another_draft_graph(world: World) -> Callable[[], object]:
    draft = world.draft
    other = SimpleNamespace(
        model_runner=draft, forward_mode=draft.forward_mode, draft_extend_attn_backend=draft.attn_backend
    )
    return lambda: world._round(graph=other)


def to_another_draft_backend(world: World) -> Callable[[], object]:
    world.draft.draft_extend_attn_backend = Backend()
    return world.round


@pytest.mark.parametrize("repeating", KINDS)
@pytest.mark.parametrize(
    ("usual", "change"),
    [
        ("fine", to_another_graph),
        ("fine", to_another_backend),
        ("fine", to_another_mode),
        ("round", to_another_draft_graph),
        ("round", to_another_draft_backend),
    ],
)
def test_what_repeats_behind_a_change_is_recognised_again(
    repeating: type[Repeating], usual: str, change: Callable[[World], Callable[[], object]]
) -> None:
    world = World(repeating, speculates=usual == "round")
    world.change_owner()
    for _ in range(3):
        world.act(usual)
    changed, looked, current = change(world), counting(world), world.scheduler.steps.current
    demote = current.demote

    def demoted() -> None:
        looked.times += 1
        demote()

    current.demote = demoted
    for _ in range(20):
        changed()
    assert looked.times == 1


@pytest.mark.parametrize("repeating", KINDS)
@pytest.mark.parametrize("usual", ["fine", "round"])
def test_a_backend_that_is_replaced_by_its_like_is_learnt_anew(repeating: type[Repeating], usual: str) -> None:
    world = World(repeating, speculates=usual == "round")
    world.change_owner()
    world.act(usual)
    world.scheduler.owner.attn_backend = Backend()
    looked = counting(world)
    for _ in range(50):
        world.act(usual)
    assert looked.times == 1


@pytest.mark.parametrize("repeating", KINDS)
def test_a_step_that_is_due_is_looked_at(
    repeating: type[Repeating],
) -> None:
    world = World(repeating)
    world.fine()
    looked, current = counting(world), world.scheduler.steps.current
    current.arm(current.like, 3)
    world.fine()
    world.fine()
    assert looked.times == 0
    world.fine()  # step 3; nothing else is due, so that it ends with this
    assert looked.times == 1
    world.fine()
    assert looked.times == 1


@pytest.mark.parametrize("repeating", KINDS)
@pytest.mark.parametrize("hook", ["step_started", "barrier_applied", "step_finished", "range_started"])
def test_whoever_wants_to_hear_of_each_step_does(repeating: type[Repeating], hook: str) -> None:
    heard: list[object] = []
    listening = type("Listening", (Observer,), {hook: lambda _, *told: heard.append(told)})
    scheduler = Scheduler(observers=[listening()], repeating=repeating)
    scheduler.result_queue = [object()]
    for _ in range(10):
        scheduler.step("DECODE", lambda: scheduler.graph(scheduler.target, "DECODE", "IN_REPLAY"))
    assert len(heard) >= 10


@pytest.mark.parametrize("repeating", KINDS)
def test_after_an_error_every_step_is_looked_at(repeating: type[Repeating]) -> None:
    world = World(repeating)
    world.scheduler.ledger.health.errors["run_batch"] += 1
    looked = counting(world)
    for _ in range(5):
        world.fine()
    assert looked.times == 5


@pytest.mark.parametrize("repeating", KINDS)
@pytest.mark.parametrize("broken", ["result_queue", "model_worker"])
def test_what_the_general_hooks_would_fail_at_is_left_to_them(repeating: type[Repeating], broken: str) -> None:
    world = World(repeating, speculates=True)
    for _ in range(3):
        world.fine()
    setattr(world.scheduler, broken, None)
    with pytest.raises((AttributeError, TypeError)):  # unguarded here; the guard counts it where SGLang serves
        world.fine()


@pytest.mark.skipif(COMPILED is None, reason="the compiled part wasn't built")
def test_serving_makes_no_record_of_a_repeated_step(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    monkeypatch.setattr(RowKeeper, "row", property(made.append))  # for whoever dumps, and takes 20 µs
    world = World(COMPILED)
    for action in ("fine", "prefill", "force", "fine", "force", "eager", "idle"):
        for _ in range(3):
            world.fine()
        world.act(action)
    assert not made
    assert world.scheduler.steps.probe.newest is not None
    assert made


@pytest.mark.parametrize("repeating", KINDS)
def test_a_session_stands_in_front_of_a_draft_that_is_extended(repeating: type[Repeating]) -> None:
    world = World(repeating, speculates=True)
    world.change_owner()
    scheduler, session = world.scheduler, object.__new__(Session)
    session.steps = scheduler.steps
    scheduler._extend = session.in_front("draft_extend_execute", bound(scheduler.draft_hook, None))
    for _ in range(3):
        world.round()
    assert scheduler.steps.current.has_extended


@pytest.mark.parametrize("repeating", KINDS)
def test_nothing_of_a_step_is_kept_alive_behind_its_barrier(repeating: type[Repeating]) -> None:
    world = World(repeating)
    for _ in range(3):
        world.fine()
    batch = weakref.ref(world.scheduler.cur_batch_for_debug)
    world.scheduler.cur_batch_for_debug = None
    gc.collect()
    assert batch() is None


@pytest.mark.parametrize("repeating", KINDS)
def test_what_it_held_is_let_go_of_with_it(repeating: type[Repeating]) -> None:
    class Held:
        def __call__(self, *_: object) -> bool:
            return False

    current: Any = repeating({}, 0)
    held = [Held() for _ in range(6)]
    current.demote, current.tell_extended, current.progress, current.scheduler, current.batch, forced = held
    current.ask_forced(forced)
    left = [weakref.ref(one) for one in held]
    del held, forced, current
    assert [one() for one in left] == [None] * 6


@pytest.mark.parametrize("repeating", KINDS)
def test_the_tokens_of_repeated_steps_are_recorded(repeating: type[Repeating]) -> None:
    world = World(repeating)
    scheduler, target = world.scheduler, world.scheduler.target
    for tokens in (5, 6, 7):
        batch = Batch(member("TARGET_VERIFY"), extend_num_tokens=tokens)
        scheduler._launch(lambda *_: scheduler.graph(target, "TARGET_VERIFY", "IN_REPLAY"), scheduler, batch)
        scheduler._barrier(type(scheduler).apply_barrier, scheduler)
    assert [facts.tokens for facts in world.recorded()] == [5, 6, 7]


@pytest.mark.parametrize("repeating", KINDS)
def test_a_world_can_be_freed(repeating: type[Repeating]) -> None:
    world = World(repeating)
    for _ in range(3):
        world.fine()
    scheduler, watch = weakref.ref(world.scheduler), weakref.ref(world.scheduler.watch)
    del world
    gc.collect()
    assert (scheduler(), watch()) == (None, None)


@pytest.mark.parametrize("repeating", KINDS)
def test_hooks_pass_on_what_the_original_returns_and_raises(repeating: type[Repeating]) -> None:
    current = repeating({}, 0)

    def general(original: Callable[..., object], *args: object, **kwargs: object) -> object:
        return original(*args, **kwargs)

    for make in (current.launch, current.inputs, current.resolve, current.barrier):
        hook = make(general)
        assert hook(lambda *args, **kwargs: (args, kwargs), 1, two=2) == ((1,), {"two": 2})
        with pytest.raises(ZeroDivisionError):
            hook(lambda: 1 // 0)


@pytest.mark.skipif(COMPILED is None, reason="the compiled part wasn't built")
def test_the_compiled_one_refuses_what_it_cannot_use() -> None:
    made: Any = COMPILED
    current = made({}, 0)
    with pytest.raises(AttributeError, match="extends"):
        current.arm(object())
    with pytest.raises(ValueError, match="how many"):
        current.keep(-1)
    with pytest.raises(TypeError, match="dict"):
        current.ask_forced(bool, [])
    with pytest.raises(TypeError, match="original"):
        current.launch(bool)()


@pytest.mark.parametrize("repeating", KINDS)
def test_a_step_that_ended_its_loop_by_raising_is_absent_in_the_next(repeating: type[Repeating]) -> None:
    quick, general = World(repeating), World(None)
    for world in (quick, general):
        for _ in range(3):
            world.fine()
        world.raising()
        session = object.__new__(Session)
        session.steps, session.watch = world.scheduler.steps, world.scheduler.watch
        begun: Any = SimpleNamespace(facts=SimpleNamespace(loop=""))
        session._started = begun
        scheduler: Any = world.scheduler
        session.loop_begins(scheduler, LOOPS["event_loop_overlap"])
        for _ in range(3):
            world.fine()
    assert quick.outcome() == general.outcome()
