"""The hooks below the model runner: what was served, where its reads end, whether that was published."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from sglang_fence.contract import FallbackReason, SharedReadEnds
from sglang_fence.sglang_plugin.gates import prefill_reason
from sglang_fence.sglang_plugin.guard import Handler
from sglang_fence.sglang_plugin.phases import Serving
from sglang_fence.sglang_plugin.steps import leave
from sglang_fence.sglang_plugin.words import forward_mode, read_ends

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from sglang_fence.observe.record import Phase
    from sglang_fence.sglang_plugin.border import Border
    from sglang_fence.sglang_plugin.phases import Phases
    from sglang_fence.sglang_plugin.shapes import BackendLike, BatchLike, DraftExtendLike, GraphRunnerLike, RunnerLike
    from sglang_fence.sglang_plugin.words import Named

logger = logging.getLogger(__name__)


def warn_unsound(phases: Phases, phase: Phase) -> None:
    """Say once that a read end was resolved earlier than declared."""
    if not phases.unsound_seen:
        phases.unsound_seen = True
        logger.warning(
            "sglang-fence: %s declares %s for %s and SGLang resolved %s, which is earlier: shared buffers may be "
            "overwritten while they are read. A known fault of SGLang up to 0.5.21; later versions don't have it.",
            phase.backend,
            phase.declared.name,
            phase.mode,
            phase.resolved.name,
        )


class DecodeResolve(Handler):
    """A decode or verify graph is about to replay: it declares, and resolves, where its reads end."""

    def __init__(self, phases: Phases) -> None:
        self._phases = phases

    def after(  # noqa: D102 - see Handler
        self,
        _: None,
        result: Named,
        runner: GraphRunnerLike,
        attn_backend: BackendLike,
        forward_mode: Named,
    ) -> None:
        if not self._phases.in_step:
            return
        declared = attn_backend.shared_read_ends(forward_mode)
        phase = self._phases.tell(runner.model_runner, attn_backend, forward_mode, declared, result)
        if phase.resolved < phase.declared:
            warn_unsound(self._phases, phase)


class RunnerExecute(Handler):
    """A runner that publishes prefill's read end, or none, serves a batch."""

    def __init__(self, phases: Phases) -> None:
        self._phases = phases

    def before(self, runner: GraphRunnerLike, forward_batch: BatchLike, *_: Any, **__: Any) -> Serving:  # noqa: ANN401, D102 - see Handler
        serving = Serving(runner.model_runner, forward_batch, forward_batch.forward_mode)
        if self._phases.in_step and forward_mode(serving.mode).is_prefill():
            serving.marked = self._phases.mark("prefill")
        self._phases.serving.append(serving)
        return serving

    def after(self, token: Serving, *_: Any, **__: Any) -> None:  # noqa: ANN401, D102 - see Handler
        self.raised(token)
        if not token.told and self._phases.in_step:
            backend = token.runner.attn_backend
            declared = backend.shared_read_ends(token.mode)
            idle = forward_mode(token.mode).is_idle()
            reason = FallbackReason.IDLE if idle else FallbackReason.NO_GRAPH
            self._phases.tell(token.runner, backend, token.mode, declared, SharedReadEnds.UNKNOWN, reason)

    def raised(self, token: Serving) -> None:  # noqa: D102 - see Handler
        leave(token.marked)
        serving = self._phases.serving
        while serving and serving.pop() is not token:
            pass


class PublishPrefill(Handler):
    """Prefill publishes, or doesn't: the mailbox tells."""

    def __init__(self, phases: Phases, border: Border) -> None:
        self._phases = phases
        self._border = border

    def before(self, model_runner: RunnerLike, *_: Any, **__: Any) -> object | None:  # noqa: ANN401, D102 - see Handler
        return model_runner.shared_read_done_event

    def after(self, token: object | None, _: None, model_runner: RunnerLike, *__: Any, **___: Any) -> None:  # noqa: ANN401, D102 - see Handler
        if not self._phases.serving or not self._phases.in_step:
            return
        serving = self._phases.serving[-1]
        serving.told = True
        event = model_runner.shared_read_done_event
        backend = model_runner.attn_backend
        now = serving.batch.forward_mode  # a mixed batch is run as EXTEND, and judged as that
        declared = read_ends(backend.shared_read_ends(now))
        if event is not None and event is not token:
            # A backend that snapshots declares by building the snapshot.
            declared = SharedReadEnds.PRE_REPLAY if declared is SharedReadEnds.UNKNOWN else declared
            self._phases.tell(model_runner, backend, serving.mode, declared, SharedReadEnds.PRE_REPLAY)
        else:
            reason = prefill_reason(self._border, model_runner, backend, forward_mode(now), declared)
            self._phases.tell(model_runner, backend, serving.mode, declared, SharedReadEnds.UNKNOWN, reason)


class _Before(NamedTuple):
    event: object | None
    marked: AbstractContextManager[None] | None


class DraftExtend(Handler):
    """EAGLE's draft-extend, by a graph: it fills the draft runner's mailbox itself."""

    def __init__(self, phases: Phases, border: Border) -> None:
        self._phases = phases
        self._border = border

    def before(self, runner: DraftExtendLike, *_: Any, **__: Any) -> _Before:  # noqa: ANN401, D102 - see Handler
        return _Before(runner.model_runner.shared_read_done_event, self._phases.mark("draft_extend"))

    def after(self, token: _Before, _: object, runner: DraftExtendLike, *__: Any, **___: Any) -> None:  # noqa: ANN401, D102 - see Handler
        leave(token.marked)
        if not self._phases.in_step:
            return
        backend = runner.draft_extend_attn_backend
        declared = read_ends(backend.shared_read_ends(runner.forward_mode))
        event = runner.model_runner.shared_read_done_event
        if event is None or event is token.event:
            resolved = SharedReadEnds.UNKNOWN
        elif self._border.draft_extend_declares and declared is not SharedReadEnds.PRE_REPLAY:
            resolved = SharedReadEnds.POST_REPLAY
        else:
            resolved = SharedReadEnds.PRE_REPLAY
        phase = self._phases.tell(runner.model_runner, backend, runner.forward_mode, declared, resolved)
        if phase.resolved < phase.declared:
            warn_unsound(self._phases, phase)

    def raised(self, token: _Before) -> None:  # noqa: D102 - see Handler
        leave(token.marked)
