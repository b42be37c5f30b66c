"""The hooks on the scheduler: a launch, its barrier, the first work of a forward, idleness."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sglang_fence.contract import FallbackReason, FenceKind
from sglang_fence.sglang_plugin.guard import Handler
from sglang_fence.sglang_plugin.requests import traceparents
from sglang_fence.sglang_plugin.steps import leave

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from sglang_fence.sglang_plugin.shapes import ScheduleBatchLike, SchedulerLike
    from sglang_fence.sglang_plugin.steps import Steps, Verdict
    from sglang_fence.sglang_plugin.watch import Watch


class RunBatch(Handler):
    """A batch is launched: a step. A launch inside of a launch (disaggregated decode does that) is the same step."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._depth = 0
        self._range: AbstractContextManager[None] | None = None

    def before(self, scheduler: SchedulerLike, batch: ScheduleBatchLike, *_: Any, **__: Any) -> None:  # noqa: ANN401, D102 - see Handler
        if not self._depth:  # counted last: nobody says that a launch is over whose beginning failed
            watch = self._watch
            watch.begin(scheduler, batch)
            if watch.steps.marks:
                if watch.steps.probe.traced:
                    watch.steps.probe.link(tuple(traceparents(batch.reqs)))
                self._range = watch.steps.range("launch")
        self._depth += 1

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
            self._watch.arm_behind(token)
        elif token.reason is FallbackReason.BACKEND_UNKNOWN:
            self._watch.arm(token)
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
