"""The hooks on the scheduler: where a step begins, how its barrier came out, which loop runs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from sglang_fence.contract import FallbackReason, FenceKind, ForwardMode
from sglang_fence.observe.record import NO_STEP
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
        self._owner_before: RunnerLike | None = None
        self._lying: object | None = None
        """What lay in that one's mailbox when the step began."""
        self._verdict = Verdict()

    def begin(self, scheduler: SchedulerLike, batch: ScheduleBatchLike | None) -> None:
        """Begin a step; ``batch`` is what it computes."""
        self.meter.next_step()
        if self.forward_stream is not None and self.steps.probe.recording:
            self.note_results(scheduler)
        owner = self._owner_before = scheduler.model_worker.last_shared_read_runner
        self._lying = owner.shared_read_done_event
        self.forward_enqueued = False
        backend = type(owner.attn_backend).__name__
        if batch is None:
            self.mode = ForwardMode.IDLE
            self.steps.begin(ForwardMode.IDLE, backend, 0, 0)
        else:
            mode = self.mode = forward_mode(batch.forward_mode)
            size = len(batch.reqs)
            if self.forward_stream is not None and scheduler.last_batch is not None and not scheduler.result_queue:
                self.unoverlapped[mode] += 1  # an overlapped launch has the last one's results still to process
            self.steps.begin(mode, backend, size, batch.extend_num_tokens or size)

    def note_results(self, scheduler: SchedulerLike) -> None:
        """Note whose results the host has: of all launches but those whose results lie in the queue."""
        self.steps.probe.progress.in_hand = max(NO_STEP, self.steps.number - len(scheduler.result_queue))

    def judge(self, scheduler: SchedulerLike) -> Verdict:
        """Return how the barrier is about to come out, by what SGLang itself looks at."""
        if not scheduler._war_barrier_enabled:  # noqa: SLF001 - SGLang's name; it has no other
            return self._verdict.tell(FenceKind.DISABLED)
        owner = scheduler.model_worker.last_shared_read_runner
        if owner is not self._owner:
            if self._owner is not None:
                self.health.owner_changes[role_of(owner)] += 1
            self._owner = owner
        event = owner.shared_read_done_event
        served = self.phases.of(owner)
        published = None
        if served is not None and served.published and served.phase is not None:
            published = (served.phase.resolved, self.steps.number)
        elif event is not None and (owner is not self._owner_before or event is self._lying):
            # It lay there before the step; in another owner's mailbox than the one that was looked at, so it seems.
            self.health.stale_publications[role_of(owner)] += 1
        if self.border.forced():
            return self._verdict.tell(FenceKind.COARSE, FallbackReason.FORCED, published, event)
        if event is not None:
            return self._verdict.tell(FenceKind.FINE, None, published, event)
        reason = served.reason if served is not None else None
        if reason is None:
            idle = self.mode is None or self.mode.is_idle()
            reason = FallbackReason.IDLE if idle else FallbackReason.OWNER_SILENT
        return self._verdict.tell(FenceKind.COARSE, reason)


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
            if probe.marks:
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
        steps = self._watch.steps
        steps.close_absent()
        steps.probe.progress.in_hand = steps.number  # it idles once all results are processed, and not before
        steps.probe.idle()


class Ranged(Handler):
    """A phase that is only marked, for NVTX and traces."""

    def __init__(self, watch: Watch, name: str) -> None:
        self._watch = watch
        self._name = name

    def before(self, *_: Any, **__: Any) -> AbstractContextManager[None] | None:  # noqa: ANN401, D102 - see Handler
        probe = self._watch.steps.probe
        return probe.range(self._name) if probe.marks else None

    def after(self, token: AbstractContextManager[None] | None, *_: Any, **__: Any) -> None:  # noqa: ANN401, D102 - see Handler
        leave(token)

    raised = after
