"""Dumps by hand, as short as they can be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sglang_fence.contract import FenceKind, ForwardMode, SharedReadEnds
from sglang_fence.observe.flight.facts import Cause, Clock, Dump, ProgressFacts, StepFacts
from sglang_fence.observe.record import Phase

DECODE = Phase(ForwardMode.DECODE, "target", "native", SharedReadEnds.IN_REPLAY, SharedReadEnds.IN_REPLAY, None)
US = 1_000
STEP_NS = 1_000 * US


def step_of(number: int, **changes: Any) -> StepFacts:  # noqa: ANN401 - fields of a step
    """Return a decode behind a fine fence, whose wait is enqueued."""
    began = number * STEP_NS
    made = StepFacts(
        step=number,
        mode=ForwardMode.DECODE,
        backend="native",
        batch_size=8,
        tokens=8,
        phases=(DECODE,),
        declared=SharedReadEnds.IN_REPLAY,
        resolved=SharedReadEnds.IN_REPLAY,
        downgrade=None,
        fence=FenceKind.FINE,
        reason=None,
        record=100 + number,
        event=0xABC,
        started_ns=began,
        launched_ns=began + 10 * US,
        entered_ns=began + 11 * US,
        issued_ns=began + 12 * US,
    )
    return replace(made, **changes)


def launching(number: int) -> StepFacts:
    """Return a step that is being launched."""
    return step_of(
        number,
        fence=FenceKind.ABSENT,
        resolved=SharedReadEnds.UNKNOWN,
        record=None,
        event=None,
        launched_ns=None,
        entered_ns=None,
        issued_ns=None,
    )


def dump_of(
    *steps: StepFacts,
    in_hand: int | None = None,
    awaited: int | None = None,
    timed: int | None = None,
    in_order: bool = True,
    settled_ns: int | None = None,
    **changes: Any,  # noqa: ANN401 - fields of a dump
) -> Dump:
    """Return a dump of such steps, half a second after the last of them."""
    progress = ProgressFacts(awaited=awaited, in_hand=in_hand, timed=timed, in_order=in_order, settled_ns=settled_ns)
    made = Dump(
        version="0.1.0",
        rank="0",
        pid=7,
        cause=Cause.SIGNAL,
        detail=None,
        wall_ns=1_700_000_000 * 10**9,
        now_ns=(steps[-1].started_ns if steps else 0) + 500_000 * US,
        clock=Clock.HOST,
        capacity=256,
        progress=progress,
        steps=steps,
        stack=("torch.cuda.streams:Event.synchronize:230",),
    )
    return replace(made, **changes)
