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


def tell_draft_extend(phases: Phases, runner: DraftExtendLike, *, published: bool, declares: bool) -> None:
    """Tell the step that its draft was extended by a graph.

    Args:
        phases: of the step.
        runner: the graph's.
        published: whether it put a read end into its mailbox.
        declares: whether it publishes where its backend says, or always before the replay.
    """
    model_runner, backend, mode = runner.model_runner, runner.draft_extend_attn_backend, runner.forward_mode
    if not published and phases.tell_again(model_runner, backend, mode, SharedReadEnds.UNKNOWN, extender=runner):
        return
    declared = read_ends(backend.shared_read_ends(mode))
    if not published:
        resolved = SharedReadEnds.UNKNOWN
    elif declares and declared is not SharedReadEnds.PRE_REPLAY:
        resolved = SharedReadEnds.POST_REPLAY
    else:
        resolved = SharedReadEnds.PRE_REPLAY
    phase = phases.tell(model_runner, backend, mode, declared, resolved, extender=runner)
    if phase.resolved < phase.declared:
        warn_unsound(phases, phase)


class DecodeResolve(Handler):
    """A decode or verify graph is about to replay: it declares, and resolves, where its reads end."""

    def __init__(self, phases: Phases) -> None:
        self._phases = phases

    def after(  # noqa: D102 - see Handler
        self,
        result: Named,
        runner: GraphRunnerLike,
        attn_backend: BackendLike,
        forward_mode: Named,
    ) -> None:
        phases, model_runner = self._phases, runner.model_runner
        if not phases.steps.current.open or phases.tell_again(model_runner, attn_backend, forward_mode, result, runner):
            return
        declared = attn_backend.shared_read_ends(forward_mode)
        phase = phases.tell(model_runner, attn_backend, forward_mode, declared, result, graph=runner)
        if phase.resolved < phase.declared:
            warn_unsound(phases, phase)


class RunnerExecute(Handler):
    """A runner that publishes prefill's read end, or none, serves a batch."""

    def __init__(self, phases: Phases) -> None:
        self._phases = phases

    def before(self, runner: GraphRunnerLike, forward_batch: BatchLike, *_: Any, **__: Any) -> Serving:  # noqa: ANN401, D102 - see Handler
        serving = Serving(runner.model_runner, forward_batch, forward_batch.forward_mode)
        if self._phases.steps.current.open and forward_mode(serving.mode).is_prefill():
            serving.marked = self._phases.mark("prefill")
        self._phases.serving.append(serving)
        return serving

    def over(self, token: Serving, /) -> None:  # noqa: D102 - see Handler
        self.raised(token)
        if not token.told and self._phases.steps.current.open:
            backend = token.runner.attn_backend
            declared = backend.shared_read_ends(token.mode)
            idle = forward_mode(token.mode).is_idle()
            reason = FallbackReason.IDLE if idle else FallbackReason.NO_GRAPH
            self._phases.tell(token.runner, backend, token.mode, declared, SharedReadEnds.UNKNOWN, reason)

    def raised(self, token: Serving, /) -> None:  # noqa: D102 - see Handler
        leave(token.marked)
        serving = self._phases.serving
        while serving and serving.pop() is not token:
            pass


class _Before(NamedTuple):
    """What was there before a runner may have published."""

    event: object | None
    """In its mailbox."""
    marked: AbstractContextManager[None] | None = None
    """Its range."""
    runner: Any = None


class PublishPrefill(Handler):
    """Prefill publishes, or doesn't: the mailbox tells."""

    def __init__(self, phases: Phases, border: Border) -> None:
        self._phases = phases
        self._border = border

    def before(self, model_runner: RunnerLike, *_: Any, **__: Any) -> _Before:  # noqa: ANN401, D102 - see Handler
        return _Before(model_runner.shared_read_done_event, runner=model_runner)

    def over(self, token: _Before, /) -> None:  # noqa: D102 - see Handler
        if not self._phases.serving or not self._phases.steps.current.open:
            return
        serving = self._phases.serving[-1]
        serving.told = True
        model_runner: RunnerLike = token.runner
        event = model_runner.shared_read_done_event
        backend = model_runner.attn_backend
        now = serving.batch.forward_mode  # a mixed batch is run as EXTEND, and judged as that
        declared = read_ends(backend.shared_read_ends(now))
        if event is not None and event is not token.event:
            # A backend that snapshots declares by building the snapshot.
            declared = SharedReadEnds.PRE_REPLAY if declared is SharedReadEnds.UNKNOWN else declared
            self._phases.tell(model_runner, backend, serving.mode, declared, SharedReadEnds.PRE_REPLAY)
        else:
            reason = prefill_reason(self._border, model_runner, backend, forward_mode(now), declared)
            self._phases.tell(model_runner, backend, serving.mode, declared, SharedReadEnds.UNKNOWN, reason)


class DraftExtend(Handler):
    """EAGLE's draft-extend, by a graph: it fills the draft runner's mailbox itself."""

    def __init__(self, phases: Phases, border: Border) -> None:
        self._phases = phases
        self._border = border

    def before(self, runner: DraftExtendLike, *_: Any, **__: Any) -> _Before:  # noqa: ANN401, D102 - see Handler
        return _Before(runner.model_runner.shared_read_done_event, self._phases.mark("draft_extend"), runner)

    def over(self, token: _Before, /) -> None:  # noqa: D102 - see Handler
        leave(token.marked)
        phases = self._phases
        if not phases.steps.current.open:
            return
        runner: DraftExtendLike = token.runner
        event = runner.model_runner.shared_read_done_event
        published = event is not None and event is not token.event
        tell_draft_extend(phases, runner, published=published, declares=self._border.draft_extend_declares)

    def raised(self, token: _Before, /) -> None:  # noqa: D102 - see Handler
        leave(token.marked)
