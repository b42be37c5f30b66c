"""``Answering``: what the hooks before the general ones ask of these. Nothing here raises."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from time import perf_counter_ns
from typing import TYPE_CHECKING

from sglang_fence.contract import SharedReadEnds
from sglang_fence.sglang_plugin.runner_hooks import tell_draft_extend

if TYPE_CHECKING:
    from sglang_fence.observe.ledger import Health
    from sglang_fence.sglang_plugin.phases import Phases
    from sglang_fence.sglang_plugin.shapes import BackendLike, DraftExtendLike, RunnerLike, ScheduleBatchLike
    from sglang_fence.sglang_plugin.steps import Steps

logger = logging.getLogger(__name__)


class Answering(ABC):
    """The part of a watch that is called back: a step repeats no more, was extended, or is about to run."""

    steps: Steps
    phases: Phases
    health: Health
    forward_enqueued: bool
    forward_stream: object | None
    _clock_ns: int
    _draft_extend_declares: bool
    _failed: set[str]
    """Hooks whose failure was logged."""
    _lying: object | None
    _owner_before: RunnerLike | None

    @abstractmethod
    def _start(self, batch: ScheduleBatchLike | None, backend: BackendLike) -> None:
        """Tell the probe that the newest step begins."""

    def demote(self) -> None:
        """As :meth:`begin_again`, on the account: the hooks before the general ones don't measure this."""
        began = perf_counter_ns()
        try:
            self.begin_again()
        finally:
            self._spend("run_batch", began)

    def begin_again(self) -> None:
        """Begin the open step, which seemed to be a repetition, again; and tell it of what it was seen to do."""
        current = self.steps.current
        like, batch = current.like, current.batch
        current.repeats, current.scheduler, current.batch, current.tell_inputs = False, None, None, None
        try:
            if like is None:
                return
            owner = like.owner
            self._owner_before, self._lying = owner, None
            self.forward_enqueued = True
            self._start(batch, like.backend)
            if self.forward_stream is not None:
                self.steps.forward_enqueued(self.forward_stream)
            started_ns = current.forget_row()
            if started_ns is not None:
                self.steps.probe.general_record.started_ns = started_ns
            if current.has_resolved:
                self.phases.tell(
                    like.runner, like.graph_backend, like.graph_mode, like.declared, like.resolved, graph=like.graph
                )
            if current.has_extended and like.extension is not None:
                extender, backend, mode, declared, _ = like.extension
                self.phases.tell(owner, backend, mode, declared, SharedReadEnds.UNKNOWN, extender=extender)
        except Exception as error:  # noqa: BLE001 - it is counted and logged
            self._fails("run_batch", error)

    def tell_extended(self, runner: DraftExtendLike) -> None:
        """Tell the open step, which seemed to be a repetition and was begun again, that its draft was extended."""
        try:
            published = runner.model_runner.shared_read_done_event is not None  # the mailbox was empty before
            tell_draft_extend(self.phases, runner, published=published, declares=self._draft_extend_declares)
        except Exception as error:  # noqa: BLE001 - as above
            self._fails("draft_extend_execute", error)

    def start_behind(self) -> None:
        """The first work of a repeated step is enqueued next, behind a coarse step that is timed."""
        began = perf_counter_ns()
        try:
            self.steps.start_behind(self.forward_stream)
        except Exception as error:  # noqa: BLE001 - it is counted and logged
            self._fails("resolve_forward_inputs", error)
        self._spend("resolve_forward_inputs", began)

    def _spend(self, hook: str, began: int) -> None:
        """Put on the account what was taken since, the clock's own cost left out."""
        self.health.cost_ns[hook] += max(0, perf_counter_ns() - began - self._clock_ns)

    def _fails(self, hook: str, error: Exception) -> None:
        """Count it, and log a hook's first."""
        self.health.errors[hook] = self.health.errors.get(hook, 0) + 1
        if hook not in self._failed:
            self._failed.add(hook)
            logger.error("sglang-fence: a repeated step can't be followed; serving goes on", exc_info=error)
