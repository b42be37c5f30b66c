"""The fence that the barrier takes for a step, and the phase that it belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sglang_fence.audit.cases import Claim
from sglang_fence.contract import FallbackReason, FenceKind, ForwardMode, SharedReadEnds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sglang_fence.audit.phases import Phase
    from sglang_fence.engine.engine import Engine
    from sglang_fence.fence.barrier import Verdict


@dataclass(frozen=True, slots=True)
class StepFence:
    """What the schedule stream would wait for behind a step."""

    claim: Claim
    published: SharedReadEnds
    ends: SharedReadEnds
    """UNKNOWN: it is coarse."""
    phase: Phase | None
    """Whose end it is; None behind a coarse fence, or where an end was published that no phase of the step has."""
    reason: FallbackReason | None


def fence_of(engine: Engine, phases: Sequence[Phase], step: int, mode: ForwardMode) -> StepFence:
    """Ask the engine's own barrier, which empties the mailboxes; the step was launched, ``phases`` in order."""
    owner = engine.worker.last_shared_read_mailbox
    verdict = engine.barrier.apply(step, engine.worker, engine.worker.forward_stream)
    return judge_fence(verdict, [phase for phase in phases if phase.runner.shared_read_done is owner], mode)


def judge_fence(verdict: Verdict, own: Sequence[Phase], mode: ForwardMode) -> StepFence:
    """Find the phase among the owner's own; each publishes once (R5), so that the newest is meant."""
    fine = verdict.kind is FenceKind.FINE and verdict.done is not None
    phase = None
    if fine and verdict.done is not None:
        published = verdict.done.mode
        phase = next((phase for phase in reversed(own) if phase.batch.mode is published), None)
    reader = ("", "") if phase is None else (phase.runner.role, phase.backend.name)
    claim = Claim("step", *reader, mode)
    ends = verdict.ends if fine else SharedReadEnds.UNKNOWN
    return StepFence(claim, verdict.ends, ends, phase, verdict.reason)
