"""``Watch``: where a step begins and how its barrier comes out, for the scheduler's hooks to say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.contract import FallbackReason, FenceKind, ForwardMode
from sglang_fence.observe.record import NO_STEP
from sglang_fence.sglang_plugin.answering import Answering
from sglang_fence.sglang_plugin.likeness import Likeness
from sglang_fence.sglang_plugin.phases import role_of
from sglang_fence.sglang_plugin.steps import Verdict
from sglang_fence.sglang_plugin.words import forward_mode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sglang_fence.observe.ledger import Ledger
    from sglang_fence.observe.record import Phase
    from sglang_fence.sglang_plugin.border import Border
    from sglang_fence.sglang_plugin.guard import Meter
    from sglang_fence.sglang_plugin.likeness import Extension, Graph
    from sglang_fence.sglang_plugin.phases import Phases
    from sglang_fence.sglang_plugin.shapes import (
        BackendLike,
        RunnerLike,
        ScheduleBatchLike,
        SchedulerLike,
    )
    from sglang_fence.sglang_plugin.steps import Steps
    from sglang_fence.sglang_plugin.targets import Loop
    from sglang_fence.sglang_plugin.words import Named


class Watch(Answering):
    """What the scheduler's hooks share: the step in progress, who owned its last shared read, and the loop."""

    def __init__(self, steps: Steps, phases: Phases, border: Border, ledger: Ledger, meter: Meter) -> None:
        self.steps = steps
        self.phases = phases
        self.health = ledger.health
        self._ledger = ledger
        self._clock_ns = meter.clock_ns
        self.loop: Loop | None = None
        """The loop that runs; None before it does, and where it isn't known."""
        self.forward_enqueued = True
        """Whether the first work of the step's forward was seen."""
        self.forward_stream: object | None = None
        """Of the loop that runs; None where its forwards aren't all on one stream, beside the schedule stream."""
        self._forced = border.forced
        self._draft_extend_declares = border.draft_extend_declares
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
        self._failed = set()
        steps.begin_again = self.begin_again
        steps.current.demote, steps.current.tell_extended = self.demote, self.tell_extended
        steps.current.ask_forced(
            border.forced, getattr(border.forced, "variables", None), getattr(border.forced, "key", None)
        )

    def begin(self, scheduler: SchedulerLike, batch: ScheduleBatchLike | None) -> None:
        """Begin the next step, and close the one before where nobody did; ``batch`` is what it computes."""
        steps, current = self.steps, self.steps.current
        if current.open:
            steps.close_absent()
        current.tell_inputs = None
        current.open = True
        number = current.number = current.number + 1
        if steps.probe.recording and self.forward_stream is not None:
            # The host has the results of all launches but those whose results lie in the queue.
            steps.probe.progress.in_hand = max(NO_STEP, number - 1 - len(scheduler.result_queue))
        owner = self._owner_before = scheduler.model_worker.last_shared_read_runner
        self._lying = owner.shared_read_done_event
        self.forward_enqueued = False
        self._start(batch, owner.attn_backend)
        if self.forward_stream is None or batch is None:
            return
        if not scheduler.result_queue and scheduler.last_batch is not None:
            # An overlapped launch has the last one's results still to process.
            self.health.unoverlapped_launches[self._mode.value] += 1

    def _start(self, batch: ScheduleBatchLike | None, backend: BackendLike) -> None:
        """Tell the probe that the newest step begins."""
        steps, number = self.steps, self.steps.current.number
        if backend is not self._backend:
            self._backend, self._backend_name = backend, type(backend).__name__
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
        steps, owner, backend = self.steps, self._owner, self._backend
        probe, loop = steps.probe, self.loop
        record = probe.general_record
        if owner is None or backend is None or loop is None or not loop.barrier:
            return
        made = self._made_of(owner, verdict, record.phases)
        if made is None or not probe.only_counts(self._ledger):  # in this order: most general steps replay no graph
            return
        if any(self.health.errors.values()):
            steps.current.arm(None)
            return
        place = self._ledger.place_of(record)
        if place is None:
            return
        like, fine = steps.current.like, verdict.kind is FenceKind.FINE
        due, every = probe.due_beyond_slack if fine and steps.current.times_taken else (probe.due, 0)
        if like is None or not like.is_still(*made, backend, place):
            like = Likeness(
                *made,
                owner=owner,
                backend=backend,
                batch_mode=self._raw_mode,
                mode=self._mode,
                reason=verdict.reason,
                place=place,
                extends=record.tokens != record.batch_size,
                sole=owner.spec_algorithm.is_none(),
            )
        steps.current.arm(like, due, every)

    def arm_behind(self, verdict: Verdict) -> None:
        """Let a step behind one that is coarse and timed be a repeated one, too.

        The start of its forward is taken for the one before it. Where all fences are forced to be coarse it wouldn't
        repeat what was known, and is looked at in full; so is one of which more is asked for another reason.
        """
        probe, current = self.steps.probe, self.steps.current
        like, following = current.like, current.number + 1
        due, every = following, 0
        if (
            like is not None
            and self.forward_stream is not None
            and verdict.reason is not FallbackReason.FORCED
            and probe.only_counts(self._ledger)
            and not any(self.health.errors.values())
        ):
            due, every = probe.due_behind(beyond_slack=current.times_taken and not like.coarse)
        current.arm(like, due, every)
        if due > following and probe.wants_start_behind:
            current.tell_inputs = self.start_behind

    def _made_of(
        self, owner: RunnerLike, verdict: Verdict, phases: Sequence[Phase]
    ) -> tuple[Graph, Extension | None] | None:
        """Return the graph of the newest step, and the draft-extend behind it; None: it was made of something else."""
        number, last = self.steps.current.number, self.phases.served.get(id(owner))
        if last is None or last.step != number:
            return None
        fine, extension = verdict.kind is FenceKind.FINE, last.as_extension
        if extension is None:
            graph = last.as_graph
        else:
            others = [one for one in self.phases.served.values() if one.step == number and one is not last]
            graph = others[0].as_graph if others else None
        if graph is None or (fine and (extension is not None or verdict.published is None)):
            return None
        made = [graph.phase] if extension is None else [graph.phase, extension.phase]
        return (graph, extension) if phases == made else None

    def _take_over(self, owner: RunnerLike) -> None:
        """Another runner owns the last shared read; the first of all is no change."""
        if self._owner is not None:
            self.health.owner_changes[role_of(owner)] += 1
        self.steps.current.arm(None)  # a step like those of the owner before would be a change back
        self._owner = owner
