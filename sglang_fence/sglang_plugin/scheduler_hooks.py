"""The hooks on the scheduler: where a step begins, how its barrier came out, which loop runs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from sglang_fence.contract import FallbackReason, FenceKind, ForwardMode, SharedReadEnds
from sglang_fence.sglang_plugin.guard import Handler
from sglang_fence.sglang_plugin.phases import role_of
from sglang_fence.sglang_plugin.requests import traceparents
from sglang_fence.sglang_plugin.steps import Verdict, leave
from sglang_fence.sglang_plugin.words import forward_mode

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from sglang_fence.observe.standing import Health
    from sglang_fence.sglang_plugin.border import Border
    from sglang_fence.sglang_plugin.guard import Meter
    from sglang_fence.sglang_plugin.phases import Phases
    from sglang_fence.sglang_plugin.shapes import RunnerLike, ScheduleBatchLike, SchedulerLike
    from sglang_fence.sglang_plugin.steps import Steps
    from sglang_fence.sglang_plugin.targets import Loop


class Watch:
    """What the scheduler's hooks share: the step in progress, who owned its last shared read, and the loop."""

    def __init__(self, steps: Steps, phases: Phases, border: Border, health: Health, meter: Meter) -> None:
        self.steps = steps
        self.phases = phases
        self.border = border
        self.health = health
        self.meter = meter
        self.loop: Loop | None = None
        """The loop that runs; None before it does, and where it isn't known."""
        self.mode: ForwardMode | None = None
        """Of the step in progress, as its batch came."""
        self.forward_enqueued = True
        """Whether the first work of the step's forward was seen."""
        self.forward_stream: object | None = None
        """Of the loop that runs; None where its forwards aren't all on one stream, beside the schedule stream."""
        self.unoverlapped: Counter[ForwardMode] = Counter()
        """Launches that waited for the results of the one before."""
        self._owner: RunnerLike | None = None
        self._left: tuple[RunnerLike, object] | None = None

    def begin(self, scheduler: SchedulerLike, batch: ScheduleBatchLike | None) -> None:
        """Begin a step; ``batch`` is what it computes."""
        self.meter.next_step()
        owner = scheduler.model_worker.last_shared_read_runner
        lying = owner.shared_read_done_event
        self._left = None if lying is None else (owner, lying)
        self.mode = mode = forward_mode(batch.forward_mode) if batch is not None else None
        size = len(batch.reqs) if batch is not None else 0
        tokens = (batch.extend_num_tokens if batch is not None else None) or size
        self.forward_enqueued = False
        self.steps.begin(mode or ForwardMode.IDLE, type(owner.attn_backend).__name__, size, tokens)

    def judge(self, scheduler: SchedulerLike) -> Verdict:
        """Return how the barrier is about to come out, by what SGLang itself looks at."""
        if not scheduler._war_barrier_enabled:  # noqa: SLF001 - SGLang's name; it has no other
            return Verdict(FenceKind.DISABLED)
        owner = scheduler.model_worker.last_shared_read_runner
        if owner is not self._owner:
            if self._owner is not None:
                self.health.owner_changes[role_of(owner)] += 1
            self._owner = owner
        event = owner.shared_read_done_event
        served = self.phases.of(owner)
        published = served is not None and served.ends is not SharedReadEnds.UNKNOWN
        if event is not None and not published and self._is_left(owner, event):
            self.health.stale_publications[role_of(owner)] += 1
        done = (served.ends, self.steps.number) if served is not None and published else None
        if self.border.forced():
            return Verdict(FenceKind.COARSE, FallbackReason.FORCED, done, event)
        if event is not None:
            return Verdict(FenceKind.FINE, None, done, event)
        reason = served.reason if served is not None else None
        if reason is None:
            reason = FallbackReason.IDLE if self.mode is None or self.mode.is_idle() else FallbackReason.OWNER_SILENT
        return Verdict(FenceKind.COARSE, reason)

    def _is_left(self, owner: RunnerLike, event: object) -> bool:
        """Whether the event lay there before the step; an owner that wasn't looked at then is taken to have kept it."""
        if self._left is None:
            return owner is not self._owner
        return self._left[0] is not owner or self._left[1] is event


class RunBatch(Handler):
    """A batch is launched: a step. A launch inside of a launch (disaggregated decode does that) is the same step."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._depth = 0
        self._range: AbstractContextManager[None] | None = None

    def before(self, scheduler: SchedulerLike, batch: ScheduleBatchLike, *_: Any, **__: Any) -> None:  # noqa: ANN401, D102 - see Handler
        self._depth += 1
        if self._depth == 1:
            self._watch.begin(scheduler, batch)
            probe = self._watch.steps.probe
            if probe.traced:
                probe.link(tuple(traceparents(batch.reqs)))
            self._range = probe.range("launch")

    def after(self, *_: Any, **__: Any) -> None:  # noqa: ANN401, D102 - see Handler
        self._depth -= 1
        if self._depth:
            return
        watch = self._watch
        watch.forward_enqueued = True
        leave(self._range)
        watch.steps.probe.launched()
        if watch.loop is not None and not watch.loop.barrier:
            watch.steps.close_absent()

    def raised(self, *_: Any) -> None:  # noqa: ANN401, D102 - see Handler
        self._depth -= 1
        leave(self._range)


class ApplyBarrier(Handler):
    """The barrier of the step that was just launched."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def before(self, scheduler: SchedulerLike) -> Verdict:  # noqa: D102 - see Handler
        watch = self._watch
        if not watch.steps.open:  # its launch wasn't seen
            watch.begin(scheduler, scheduler.cur_batch_for_debug)
        verdict = watch.judge(scheduler)
        watch.steps.barrier(verdict, scheduler.forward_stream)
        return verdict

    def after(self, token: Verdict, *_: Any) -> None:  # noqa: ANN401, D102 - see Handler
        self._watch.steps.close(token)


class ForwardInputs(Handler):
    """The first work of a forward on its stream; no more than once a step, and only where the stream is known."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def before(self, *_: Any, **__: Any) -> None:  # noqa: ANN401, D102 - see Handler
        watch = self._watch
        if not watch.forward_enqueued:
            watch.forward_enqueued = True
            if watch.forward_stream is not None:
                watch.steps.probe.forward_started(watch.forward_stream)


class OnIdle(Handler):
    """The scheduler has nothing to launch."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def before(self, *_: Any) -> None:  # noqa: ANN401, D102 - see Handler
        self._watch.meter.on = False  # the scheduler spins here: what this costs isn't a step's
        self._watch.steps.close_absent()
        self._watch.steps.probe.idle()


class OverlapDecision(Handler):
    """Whether the next batch waits for the results of the last: then nothing overlaps."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def after(  # noqa: D102 - see Handler
        self,
        _: None,
        result: object,
        __: SchedulerLike,
        batch: ScheduleBatchLike | None,
        *___: Any,  # noqa: ANN401 - see Handler
        **____: Any,  # noqa: ANN401 - see Handler
    ) -> None:
        if result and batch is not None:
            self._watch.unoverlapped[forward_mode(batch.forward_mode)] += 1


class Ranged(Handler):
    """A phase that is only marked, for NVTX and traces."""

    def __init__(self, watch: Watch, name: str) -> None:
        self._watch = watch
        self._name = name

    def before(self, *_: Any, **__: Any) -> AbstractContextManager[None] | None:  # noqa: ANN401, D102 - see Handler
        return self._watch.steps.probe.range(self._name)

    def after(self, token: AbstractContextManager[None] | None, *_: Any, **__: Any) -> None:  # noqa: ANN401, D102 - see Handler
        leave(token)

    raised = after
