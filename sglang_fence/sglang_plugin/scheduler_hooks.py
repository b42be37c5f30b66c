"""The hooks on the scheduler: where a step begins, how its barrier came out, which loop runs."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from sglang_fence.contract import FallbackReason, FenceKind, ForwardMode
from sglang_fence.observe.record import NO_STEP
from sglang_fence.sglang_plugin.guard import Handler
from sglang_fence.sglang_plugin.phases import role_of
from sglang_fence.sglang_plugin.repeating import COST_SAMPLE, METERED, Likeness
from sglang_fence.sglang_plugin.requests import traceparents
from sglang_fence.sglang_plugin.steps import Verdict, leave
from sglang_fence.sglang_plugin.words import forward_mode

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from sglang_fence.observe.ledger import Ledger
    from sglang_fence.sglang_plugin.border import Border
    from sglang_fence.sglang_plugin.guard import Meter
    from sglang_fence.sglang_plugin.phases import Phases
    from sglang_fence.sglang_plugin.shapes import BackendLike, RunnerLike, ScheduleBatchLike, SchedulerLike
    from sglang_fence.sglang_plugin.steps import Steps
    from sglang_fence.sglang_plugin.targets import Loop
    from sglang_fence.sglang_plugin.words import Named

logger = logging.getLogger(__name__)


class Watch:
    """What the scheduler's hooks share: the step in progress, who owned its last shared read, and the loop."""

    def __init__(self, steps: Steps, phases: Phases, border: Border, ledger: Ledger, meter: Meter) -> None:
        self.steps = steps
        self.phases = phases
        self.health = ledger.health
        self._ledger = ledger
        self.meter = meter
        self.loop: Loop | None = None
        """The loop that runs; None before it does, and where it isn't known."""
        self.forward_enqueued = True
        """Whether the first work of the step's forward was seen."""
        self.forward_stream: object | None = None
        """Of the loop that runs; None where its forwards aren't all on one stream, beside the schedule stream."""
        self._forced = border.forced
        self._mode = ForwardMode.IDLE
        """Of the step in progress, as its batch came."""
        self._raw_mode: Named | None = None
        """The same in SGLang's words; it seldom differs from the last one."""
        self._backend: BackendLike | None = None
        self._backend_name = ""
        self._owner: RunnerLike | None = None
        self._owner_before: RunnerLike | None = None
        self._lying: object | None = None
        """What lay in that one's mailbox when the step began."""
        self._verdict = Verdict()
        self._demote_failed = False
        steps.current.demote = self.demote
        steps.current.ask_forced(
            border.forced, getattr(border.forced, "variables", None), getattr(border.forced, "key", None)
        )

    def begin(self, scheduler: SchedulerLike, batch: ScheduleBatchLike | None) -> None:
        """Begin the next step, and close the one before where nobody did; ``batch`` is what it computes."""
        steps, current = self.steps, self.steps.current
        if current.open:
            steps.close_absent()
        current.open = True
        number = current.number = current.number + 1
        self.meter.on = number % COST_SAMPLE == METERED
        if steps.probe.recording and self.forward_stream is not None:
            # The host has the results of all launches but those whose results lie in the queue.
            steps.probe.progress.in_hand = max(NO_STEP, number - 1 - len(scheduler.result_queue))
        owner = self._owner_before = scheduler.model_worker.last_shared_read_runner
        self._lying = owner.shared_read_done_event
        self.forward_enqueued = False
        self._start(batch, owner)
        if self.forward_stream is None or batch is None:
            return
        if not scheduler.result_queue and scheduler.last_batch is not None:
            # An overlapped launch has the last one's results still to process.
            self.health.unoverlapped_launches[self._mode.value] += 1

    def _start(self, batch: ScheduleBatchLike | None, owner: RunnerLike) -> None:
        """Tell the probe that the newest step begins."""
        steps, number = self.steps, self.steps.current.number
        if owner.attn_backend is not self._backend:
            self._backend = owner.attn_backend
            self._backend_name = type(self._backend).__name__
        if batch is None:
            self._raw_mode, self._mode = None, ForwardMode.IDLE
            steps.probe.step_started(number, ForwardMode.IDLE, self._backend_name, 0, 0)
            return
        if batch.forward_mode is not self._raw_mode:
            self._raw_mode = batch.forward_mode
            self._mode = forward_mode(self._raw_mode)
        size = len(batch.reqs)
        steps.probe.step_started(number, self._mode, self._backend_name, size, batch.extend_num_tokens or size)

    def judge(self, scheduler: SchedulerLike) -> Verdict:
        """Return how the barrier is about to come out, by what SGLang itself looks at."""
        verdict = self._verdict
        if not scheduler._war_barrier_enabled:  # noqa: SLF001 - SGLang's name; it has no other
            verdict.kind = FenceKind.DISABLED
            verdict.reason = verdict.published = verdict.event = None
            return verdict
        owner = scheduler.model_worker.last_shared_read_runner
        if owner is not self._owner:
            self._take_over(owner)
        event = verdict.event = owner.shared_read_done_event
        served, number = self.phases.served.get(id(owner)), self.steps.current.number
        if served is not None and served.step != number:
            served = None
        verdict.published = None
        if served is not None and served.published and served.phase is not None:
            verdict.published = (served.phase.resolved, number)
        elif event is not None and (owner is not self._owner_before or event is self._lying):
            # It lay there before the step; in another owner's mailbox than the one that was looked at, so it seems.
            self.health.stale_publications[role_of(owner)] += 1
        if self._forced():
            verdict.kind, verdict.reason = FenceKind.COARSE, FallbackReason.FORCED
        elif event is not None:
            verdict.kind, verdict.reason = FenceKind.FINE, None
        else:
            verdict.kind, verdict.published = FenceKind.COARSE, None
            verdict.reason = served.reason if served is not None else None
            if verdict.reason is None:
                idle = self._mode.is_idle()
                verdict.reason = FallbackReason.IDLE if idle else FallbackReason.OWNER_SILENT
        return verdict

    def arm(self, verdict: Verdict) -> None:
        """Let steps that are like the one that was just counted only be counted, if nobody wants more of them."""
        steps, owner = self.steps, self._owner
        probe, loop = steps.probe, self.loop
        if owner is None or loop is None or not loop.barrier or not probe.only_counts:
            return
        served, record = self.phases.served.get(id(owner)), probe.newest
        if (
            served is None
            or served.phase is None
            or served.graph is None
            or served.backend is None
            or served.mode is None
            or served.declared is None
            or served.resolved is None
            or verdict.published is None
        ):
            return
        place = self._ledger.place_of(record)
        if place is None or record.phases[0] is not served.phase or any(self.health.errors.values()):
            return
        like = steps.current.like
        due, every = probe.due_beyond_slack if steps.current.times_taken else (probe.due, 0)
        if like is not None and (like.phase, like.cell, like.graph) == (served.phase, place[0], served.graph):
            steps.current.arm(like, due, every)
            return
        steps.current.arm(
            Likeness(
                owner=owner,
                backend_name=self._backend_name,
                batch_mode=self._raw_mode,
                mode=self._mode,
                graph=served.graph,
                graph_backend=served.backend,
                graph_mode=served.mode,
                declared=served.declared,
                resolved=served.resolved,
                phase=served.phase,
                cell=place[0],
                route=place[1],
            ),
            due,
            every,
        )

    def demote(self) -> None:
        """Begin the open step, which seemed to be a repetition, again; and tell it of what it was seen to do."""
        current = self.steps.current
        like, batch = current.like, current.batch
        current.repeats, current.scheduler, current.batch = False, None, None
        try:
            if like is None:
                return
            owner = like.owner
            self._owner_before, self._lying = owner, None
            self.forward_enqueued = True
            self._start(batch, owner)
            started_ns = current.forget_row()
            if started_ns is not None:
                self.steps.probe.newest.started_ns = started_ns
            if current.resolved:
                self.phases.tell(
                    owner, like.graph_backend, like.graph_mode, like.declared, like.resolved, graph=like.graph
                )
        except Exception as error:
            self.health.errors["run_batch"] = self.health.errors.get("run_batch", 0) + 1
            if not self._demote_failed:
                self._demote_failed = True
                logger.exception("sglang-fence: a step can't be begun again; serving goes on", exc_info=error)

    def _take_over(self, owner: RunnerLike) -> None:
        """Another runner owns the last shared read; the first of all is no change."""
        if self._owner is not None:
            self.health.owner_changes[role_of(owner)] += 1
        self._owner = owner


class RunBatch(Handler):
    """A batch is launched: a step. A launch inside of a launch (disaggregated decode does that) is the same step."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._depth = 0
        self._range: AbstractContextManager[None] | None = None

    def before(self, scheduler: SchedulerLike, batch: ScheduleBatchLike, *_: Any, **__: Any) -> None:  # noqa: ANN401, D102 - see Handler
        self._depth += 1
        if self._depth == 1:
            watch = self._watch
            watch.begin(scheduler, batch)
            if watch.steps.marks:
                if watch.steps.probe.traced:
                    watch.steps.probe.link(tuple(traceparents(batch.reqs)))
                self._range = watch.steps.range("launch")

    def over(self, _: None, /) -> None:  # noqa: D102 - see Handler
        self._depth -= 1
        if self._depth:
            return
        watch = self._watch
        steps = watch.steps
        watch.forward_enqueued = True
        if steps.marks:
            leave(self._range)
        if steps.probe.recording:
            steps.probe.launched()
        if watch.loop is not None and not watch.loop.barrier:
            steps.close_absent()

    def raised(self, _: None, /) -> None:  # noqa: D102 - see Handler
        self._depth -= 1
        leave(self._range)


class ApplyBarrier(Handler):
    """The barrier of the step that was just launched."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._steps = watch.steps
        self._range: AbstractContextManager[None] | None = None

    def before(self, scheduler: SchedulerLike) -> Verdict:  # noqa: D102 - see Handler
        watch, steps = self._watch, self._steps
        if not steps.current.open:  # its launch wasn't seen
            watch.begin(scheduler, scheduler.cur_batch_for_debug)
        verdict = watch.judge(scheduler)
        if steps.marks:
            self._range = steps.range("barrier")
        left = steps.probe.timing and steps.reads_end(verdict, scheduler.forward_stream)
        if steps.probe.recording:
            steps.probe.at_barrier(verdict, verdict.event if verdict.kind is FenceKind.FINE else None)
        if left:
            steps.probe.before_wait()
        return verdict

    def over(self, token: Verdict, /) -> None:  # noqa: D102 - see Handler
        steps = self._steps
        steps.current.open = False
        probe = steps.probe
        if steps.marks:
            leave(self._range)
        probe.after_wait(token)
        if token.kind is FenceKind.FINE:
            self._watch.arm(token)
        elif probe.timing:
            steps.current.arm(None)  # more may be asked of the next step because of this one
        if probe.timing and probe.pending:  # what was timed can wait for the next step that is: the others stay cheap
            steps.read()


class ForwardInputs(Handler):
    """The first work of a forward on its stream; no more than once a step, and only where the stream is known."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._steps = watch.steps

    def before(self, *_: Any, **__: Any) -> None:  # noqa: ANN401, D102 - see Handler
        if not self._steps.probe.timing:
            return
        watch = self._watch
        if not watch.forward_enqueued:
            watch.forward_enqueued = True
            if watch.forward_stream is not None:
                self._steps.forward_started(watch.forward_stream)


class OnIdle(Handler):
    """The scheduler has nothing to launch."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def before(self, *_: Any) -> None:  # noqa: ANN401, D102 - see Handler
        self._watch.meter.on = False  # the scheduler spins here: what this costs isn't a step's
        self._watch.steps.idle()


class Ranged(Handler):
    """A phase that is only marked, for NVTX and traces."""

    def __init__(self, steps: Steps, name: str) -> None:
        self._steps = steps
        self._name = name

    def before(self, *_: Any, **__: Any) -> AbstractContextManager[None] | None:  # noqa: ANN401, D102 - see Handler
        return self._steps.range(self._name) if self._steps.marks else None

    def over(self, token: AbstractContextManager[None] | None, /) -> None:  # noqa: D102 - see Handler
        leave(token)

    raised = over
