"""One scheduler's observation, from registering to the end: what the hooks share, made in two goes.

What counts is made when hooks are registered. What SGLang has to be ready for (streams, labels, exporters) is made when
the scheduler's loop begins: only then are its streams settled, and is the folder of its metrics set.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

from sglang_fence.observe.ledger import Ledger
from sglang_fence.sglang_plugin.border import Border
from sglang_fence.sglang_plugin.guard import Handler, Meter
from sglang_fence.sglang_plugin.phases import Phases
from sglang_fence.sglang_plugin.repeating_compiled import make_repeating
from sglang_fence.sglang_plugin.runner_hooks import DecodeResolve, DraftExtend, PublishPrefill, RunnerExecute
from sglang_fence.sglang_plugin.scheduler_hooks import (
    ApplyBarrier,
    ForwardInputs,
    OnIdle,
    Ranged,
    RunBatch,
)
from sglang_fence.sglang_plugin.start import Started, start
from sglang_fence.sglang_plugin.steps import Steps
from sglang_fence.sglang_plugin.targets import LOOPS, ONLY_MARKED
from sglang_fence.sglang_plugin.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglang_fence.sglang_plugin.shapes import SchedulerLike
    from sglang_fence.sglang_plugin.switches import Switches
    from sglang_fence.sglang_plugin.targets import Loop

logger = logging.getLogger(__name__)


class Session:
    """What the hooks of one process share."""

    def __init__(self, switches: Switches) -> None:
        self.switches = switches
        self.ledger = Ledger()
        self.meter = Meter()
        self.border = Border()
        self.steps = Steps(make_repeating(self.ledger.health.cost_ns, self.meter.clock_ns))
        self.phases = Phases(self.steps)
        self.watch = Watch(self.steps, self.phases, self.border, self.ledger, self.meter)
        self._started: Started | None = None
        self.handlers: dict[str, Handler] = {
            "run_event_loop": SchedulerLife(self),
            "run_batch": RunBatch(self.watch),
            "apply_war_barrier": ApplyBarrier(self.watch),
            "on_idle": OnIdle(self.watch),
            "resolve_forward_inputs": ForwardInputs(self.watch),
            "decode_resolve": DecodeResolve(self.phases),
            "eager_execute": RunnerExecute(self.phases),
            "prefill_execute": RunnerExecute(self.phases),
            "publish_prefill": PublishPrefill(self.phases, self.border),
            "draft_extend_execute": DraftExtend(self.phases, self.border),
            **{key: LoopRuns(self, loop) for key, loop in LOOPS.items()},
        }
        """By the key of the target."""
        if switches.nvtx or switches.traces:
            self.handlers |= {key: Ranged(self.steps, name) for key, name in ONLY_MARKED.items()}

    def loop_begins(self, scheduler: SchedulerLike, loop: Loop) -> None:
        """A loop is about to run; a server that changes its role runs one after the other."""
        self.watch.loop = loop
        current = self.steps.current
        if current.repeats:  # its launch raised, and ended the loop before: what it is compared with is forgotten next
            self.steps.begin_again()
        current.arm(None)
        self.watch.forward_stream = scheduler.forward_stream if loop.barrier else None
        if self._started is None:
            self._started = start(self, scheduler)
        self._started.facts.loop = loop.label

    def meter_of(self, key: str) -> Meter:
        """Return what measures the hook on the target ``key``.

        With nothing to launch, what is done is no step's; nor is what is made when a loop begins, and ended behind it.
        """
        return Meter(on=False) if key in {"on_idle", "run_event_loop", *LOOPS} else self.meter

    def in_front(self, key: str, general: Callable[..., Any]) -> Callable[..., Any]:
        """Return the hook that SGLang gets on the target ``key``: where steps repeat, one before the ``general``."""
        current = self.steps.current
        quick = {
            "run_batch": current.launch,
            "resolve_forward_inputs": current.inputs,
            "decode_resolve": current.resolve,
            "draft_extend_execute": current.extend,
            "apply_war_barrier": current.barrier,
        }
        return quick[key](general) if key in quick else general

    def end(self, error: BaseException | None = None) -> None:
        """The scheduler is done, or ``error`` ended it: export what is left. A second time does nothing."""
        started, self._started = self._started, None
        if started is not None:
            self.steps.end()
            started.end(error)
            self.steps.observe_no_more()


class LoopRuns(Handler):
    """An event loop runs, until the scheduler is done or changes its role."""

    def __init__(self, session: Session, loop: Loop) -> None:
        self._session = session
        self._loop = loop

    def before(self, scheduler: SchedulerLike) -> None:  # noqa: D102 - see Handler
        self._session.loop_begins(scheduler, self._loop)

    def over(self, _: None, /) -> None:  # noqa: D102 - see Handler
        self._session.watch.loop = None

    raised = over


class SchedulerLife(Handler):
    """All of a scheduler's serving: after it nothing more comes."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def over(self, _: None, /) -> None:  # noqa: D102 - see Handler
        self._session.end()

    def raised(self, _: None, /) -> None:  # noqa: D102 - see Handler
        self._session.end(sys.exception())
