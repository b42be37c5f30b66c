"""A scheduler of SGLang's shape, run step by step with the real hooks, the real probe and the real ledger around it.

It does what SGLang's scheduler and runners do to mailboxes, and no more.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from sglang_fence.observe.ledger import Ledger
from sglang_fence.observe.observer import Observers
from sglang_fence.observe.sampling import Sampling
from sglang_fence.sglang_plugin.guard import Handler, Meter
from sglang_fence.sglang_plugin.phases import Phases
from sglang_fence.sglang_plugin.probing import install_probe
from sglang_fence.sglang_plugin.repeating import Repeating
from sglang_fence.sglang_plugin.runner_hooks import DecodeResolve, DraftExtend, PublishPrefill, RunnerExecute
from sglang_fence.sglang_plugin.scheduler_hooks import ApplyBarrier, ForwardInputs, OnIdle, Ranged, RunBatch
from sglang_fence.sglang_plugin.steps import Steps
from sglang_fence.sglang_plugin.targets import LOOPS, ONLY_MARKED
from sglang_fence.sglang_plugin.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sglang_fence.contract import FallbackReason, FenceKind, SharedReadEnds
    from sglang_fence.observe.flight.ring import FlightRing
    from sglang_fence.observe.observer import Observer
    from sglang_fence.sglang_plugin.words import Named


@dataclass(frozen=True)
class Member:
    """A member of an enum of SGLang's."""

    name: str


@cache
def member(name: str) -> Member:
    """Return the one member called ``name``, as an enum would."""
    return Member(name)


class Backend:
    """Declares."""

    def __init__(self, **declared: str) -> None:
        self.declared = {"DECODE": "IN_REPLAY", "TARGET_VERIFY": "IN_REPLAY", **declared}

    def shared_read_ends(self, mode: Named, /) -> Named:
        return member(self.declared.get(mode.name, "UNKNOWN"))


class SnapshotBackend(Backend):
    """Answers for prefill by the snapshot that it built."""


@dataclass
class Algorithm:
    """A speculative algorithm of 0.5.23."""

    name: str = "NONE"
    may_publish: bool = True

    def is_none(self) -> bool:
        return self.name == "NONE"

    def supports_prefill_shared_read_done(self) -> bool:
        return self.may_publish


@dataclass
class Runner:
    """A model runner."""

    attn_backend: Backend = field(default_factory=Backend)
    is_draft_worker: bool = False
    spec_algorithm: Algorithm = field(default_factory=Algorithm)
    shared_read_done_event: object | None = field(default_factory=lambda: None)  # of the object alone, as in SGLang
    model_runner: Any = None
    forward_mode: Member = field(default_factory=lambda: member("DRAFT_EXTEND_V2"))

    def __post_init__(self) -> None:
        self.model_runner = self  # it stands for its graph runners, too
        self.draft_extend_attn_backend = self.attn_backend


@dataclass
class Batch:
    """A batch."""

    forward_mode: Member
    reqs: list[object] = field(default_factory=lambda: [object()])
    extend_num_tokens: int | None = None


@dataclass
class Border:
    """SGLang's switches."""

    forced_on: bool = False
    prefill: bool = True
    cached: bool = False
    draft_extend_declares: bool = True

    def forced(self) -> bool:
        return self.forced_on

    def prefill_on(self) -> bool:
        return self.prefill

    def host_cache(self) -> bool:
        return self.cached

    def snapshots_prefill(self, backend: object) -> bool:
        return isinstance(backend, SnapshotBackend)

    def spec_reader_follows(self, runner: Runner) -> bool:
        return not runner.spec_algorithm.supports_prefill_shared_read_done()


class Scheduler:
    """The scheduler, its worker, and the hooks around both."""

    def __init__(
        self,
        loop: str | None = "event_loop_overlap",
        *,
        border: Border | None = None,
        observers: Sequence[Observer] = (),
        ring: FlightRing | None = None,
        repeating: type[Repeating] | None = Repeating,
    ) -> None:
        self.border = border or Border()
        self.ledger = Ledger()
        self.steps = Steps(None if repeating is None else repeating(self.ledger.health.cost_ns, 0))
        self.phases = Phases(self.steps)
        fake: Any = self.border
        self.watch = Watch(self.steps, self.phases, fake, self.ledger, Meter())
        self.watch.loop = LOOPS.get(loop or "")
        self.observers = Observers([self.ledger, *observers])
        shaped: Any = self
        install_probe(self.steps, shaped, self.observers, Sampling(), self.ledger.health, None, live=False, ring=ring)
        self.run_batch_hook = RunBatch(self.watch)
        self.barrier_hook = ApplyBarrier(self.watch)
        self.inputs_hook = ForwardInputs(self.watch)
        self.ranged_hooks = {key: Ranged(self.steps, name) for key, name in ONLY_MARKED.items()}
        self.idle_hook = OnIdle(self.watch)
        self.resolve_hook = DecodeResolve(self.phases)
        self.execute_hook = RunnerExecute(self.phases)
        self.publish_hook = PublishPrefill(self.phases, fake)
        self.draft_hook = DraftExtend(self.phases, fake)
        current, bare = self.steps.current, repeating is None
        self._launch = bound(self.run_batch_hook, None if bare else current.launch)
        self._barrier = bound(self.barrier_hook, None if bare else current.barrier)
        self._inputs = bound(self.inputs_hook, None if bare else current.inputs)
        self._resolve = bound(self.resolve_hook, None if bare else current.resolve)
        self._extend = bound(self.draft_hook, None if bare else current.extend)

        self.target = Runner()
        self.owner = self.target
        self.model_worker = self
        self.forward_stream = self.schedule_stream = object()
        self.cur_batch_for_debug: Batch | None = None
        self.last_batch: Batch | None = None
        self.result_queue: list[object] = []
        self._war_barrier_enabled = True

    @property
    def last_shared_read_runner(self) -> Runner:
        return self.owner

    # What SGLang does, each with its hook around it.

    def step(self, mode: str, *served: Callable[[], object], barrier: bool = True, seen: bool = True) -> None:
        """Run one iteration: launch, then the barrier."""
        self.cur_batch_for_debug = Batch(member(mode))
        if seen:
            self._launch(lambda *_: [serve() for serve in served], self, self.cur_batch_for_debug)
        if barrier:
            self._barrier(type(self).apply_barrier, self)

    def apply_barrier(self) -> None:
        """Take the publication."""
        if self._war_barrier_enabled:
            self.owner.shared_read_done_event = None

    def graph(self, runner: Runner, mode: str, resolved: str) -> None:
        """Replay a decode or verify graph."""
        self._resolve(lambda *_: member(resolved), runner, runner.attn_backend, member(mode))
        if resolved != "UNKNOWN":
            runner.shared_read_done_event = object()

    def forward_inputs(self) -> None:
        """Enqueue the first work of a forward."""
        self._inputs(lambda *_: None, self.cur_batch_for_debug, object())

    def phase(self, key: str, *inside: Callable[[], object]) -> None:
        """Run a function that is only marked."""
        around(self.ranged_hooks[key], lambda *_: [work() for work in inside], object())

    def eager(self, runner: Runner, mode: str, *, publishes: bool | None = None, runs_as: str | None = None) -> None:
        """Run a batch eagerly; ``publishes``: None where prefill's publication isn't even asked for."""
        batch = Batch(member(mode))

        def publish(*_: object) -> None:
            if publishes:
                runner.shared_read_done_event = object()

        def execute(*_: object) -> None:
            batch.forward_mode = member(runs_as or mode)
            if publishes is not None:
                around(self.publish_hook, publish, runner, object(), object())

        around(self.execute_hook, execute, runner, batch)

    def draft_extend(
        self, runner: Runner, *, publishes: bool, inside: Callable[[], object] = lambda: None, graph: object = None
    ) -> None:
        """Run EAGLE's draft-extend by its graph; ``graph``: None where the runner stands for its graphs' as well."""

        def execute(*_: object) -> None:
            if publishes:
                runner.shared_read_done_event = object()
            inside()

        self._extend(execute, runner if graph is None else graph, Batch(runner.forward_mode))

    def idle(self) -> None:
        """Have nothing to launch."""
        around(self.idle_hook, lambda *_: None, self)

    # What came of it.

    def counted(self) -> Counter[tuple[str, FenceKind, FallbackReason | None, SharedReadEnds]]:
        """Return steps by mode, fence, reason and resolved end."""
        counts: Counter[tuple[str, FenceKind, FallbackReason | None, SharedReadEnds]] = Counter()
        for kind, cell in self.ledger.cells.items():
            counts[kind.mode.value, kind.fence, kind.reason, kind.resolved] += cell.steps
        return counts


def bound(
    handler: Handler, in_front: Callable[[Callable[..., object]], Callable[..., object]] | None
) -> Callable[..., object]:
    """Return a handler's hook, with the one in front of it that recognises repeated steps."""

    def general(original: Callable[..., object], *args: object) -> object:
        return around(handler, original, *args)

    return general if in_front is None else in_front(general)


def around(handler: Handler, original: Callable[..., object], *args: object) -> object:
    """Call ``original`` with a hook around it, unguarded: an error of the hook's is the test's."""
    token = handler.before(*args)
    try:
        result = original(*args)
    except BaseException:
        handler.raised(token)
        raise
    handler.after(result, *args)
    handler.over(token)
    return result
