"""What of a step can be put to the test: its phases by claim, and the step itself behind the fence it would get."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from sglang_fence.audit.phases import reads_last
from sglang_fence.audit.published import fence_of
from sglang_fence.audit.windows import Keeping
from sglang_fence.contract import ForwardMode, SharedReadEnds
from sglang_fence.fence.publication import resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sglang_fence.audit.cases import Claim
    from sglang_fence.audit.device import AuditDevice
    from sglang_fence.audit.phases import Phase
    from sglang_fence.audit.tally import Tally
    from sglang_fence.engine.engine import Engine
    from sglang_fence.runners.work import ForwardWork


class Learning(Keeping):
    """A clean run: what phases there are, and what each could have torn."""

    def __init__(self, device: AuditDevice) -> None:
        super().__init__(device)
        self.phases: list[Phase] = []

    def after_replay(self, phase: Phase) -> None:
        """Note it, too."""
        self.phases.append(phase)
        super().after_replay(phase)


@dataclass(frozen=True, slots=True)
class Target:
    """What a run of poison is aimed at."""

    claim: Claim
    chosen: Callable[[Phase], bool]
    candidates: Sequence[SharedReadEnds | None]
    whole_step: bool


def targets_of(engine: Engine, tally: Tally, phases: Sequence[Phase], work: ForwardWork) -> list[Target]:
    """Note what is declared, resolved and published, and return what can be put to the test.

    Args:
        engine: has just launched the step; its mailboxes are emptied.
        tally: takes the claims up.
        phases: of the step, in the order of their launches.
        work: the step.
    """
    fence = fence_of(engine, phases, work.step, work.mode)
    engine.barrier.discard(engine.worker)
    by_claim: dict[Claim, list[Phase]] = {}
    for phase in phases:
        by_claim.setdefault(phase.claim, []).append(phase)
    targets = [_target(engine, tally, claim, own) for claim, own in by_claim.items()]
    known = tally.see(fence.claim, fence.published, fence.ends)
    known.last = True
    if fence.phase is not None and fence.ends in tally.candidates:
        known.available.add(fence.ends)
        chosen = partial(_is_number, fence.phase.number)
        targets.append(Target(fence.claim, chosen, (fence.ends,), whole_step=True))
    return targets


def _target(engine: Engine, tally: Tally, claim: Claim, phases: Sequence[Phase]) -> Target:
    declared = phases[0].backend.shared_read_ends(claim.mode)
    ends = min(resolve(declared, phase.marker).ends for phase in phases)
    available = [one for one in tally.candidates if _available(one, phases)]
    # Whether the claim is made at all is the batch's to say for a prefill (R8).
    early_extend = claim.mode is ForwardMode.EXTEND and declared is SharedReadEnds.PRE_REPLAY
    if early_extend and not all(phase.backend.has_extend_snapshot(phase.batch) for phase in phases):
        ends = SharedReadEnds.UNKNOWN
        available = [one for one in available if one is not SharedReadEnds.PRE_REPLAY]
    known = tally.see(claim, declared, ends)
    known.last |= any(reads_last(engine, phase) for phase in phases)
    known.available.update(available)
    return Target(claim, partial(_is_claims, claim), (None, *available), whole_step=False)


def _is_claims(claim: Claim, phase: Phase) -> bool:
    return phase.claim == claim


def _is_number(number: int, phase: Phase) -> bool:
    return phase.number == number


def _available(ends: SharedReadEnds, phases: Sequence[Phase]) -> bool:
    return ends is not SharedReadEnds.IN_REPLAY or all(phase.marker is not None for phase in phases)
