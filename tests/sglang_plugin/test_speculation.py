"""What the hooks make of speculation: verify by the target, draft-extend by the draft model, which owns the fence."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from sglang_fence.contract import FallbackReason, FenceKind, SharedReadEnds
from tests.sglang_plugin.scheduling import Algorithm, Backend, Border, Runner, Scheduler

if TYPE_CHECKING:
    from sglang_fence.contract import ForwardMode

IN, PRE, POST, UNKNOWN = (
    SharedReadEnds.IN_REPLAY,
    SharedReadEnds.PRE_REPLAY,
    SharedReadEnds.POST_REPLAY,
    SharedReadEnds.UNKNOWN,
)
FINE, COARSE = FenceKind.FINE, FenceKind.COARSE
SPECULATIVE = Algorithm("EAGLE", may_publish=False)


def _eagle(border: Border) -> tuple[Scheduler, Runner]:
    scheduler = Scheduler(border=border)
    draft = Runner(is_draft_worker=True, spec_algorithm=SPECULATIVE)
    scheduler.owner = draft
    return scheduler, draft


def test_eagle_is_coarse_each_round_where_draft_extend_declares_unknown() -> None:
    scheduler, draft = _eagle(Border())
    for _ in range(2):
        scheduler.step(
            "DECODE",
            partial(scheduler.graph, scheduler.target, "TARGET_VERIFY", "IN_REPLAY"),
            partial(scheduler.draft_extend, draft, publishes=False),
        )
    assert scheduler.counted() == {("decode", COARSE, FallbackReason.BACKEND_UNKNOWN, UNKNOWN): 2}
    phases: set[tuple[ForwardMode, str, SharedReadEnds]] = {
        (phase.mode, phase.role, phase.resolved) for phase in scheduler.ledger.phases
    }
    assert phases == {("target_verify", "target", IN), ("draft_extend", "draft", UNKNOWN)}
    # The target's mailbox stays full, and nobody looks at it.
    assert not scheduler.ledger.health.stale_publications


def test_a_draft_extend_by_a_graph_has_a_reason_of_its_own_behind_an_eager_one() -> None:
    scheduler, draft = _eagle(Border())
    scheduler.step("DECODE", partial(scheduler.eager, draft, "DRAFT_EXTEND_V2"))
    scheduler.step("DECODE", partial(scheduler.draft_extend, draft, publishes=False))
    assert scheduler.counted() == {
        ("decode", COARSE, FallbackReason.NO_GRAPH, UNKNOWN): 1,
        ("decode", COARSE, FallbackReason.BACKEND_UNKNOWN, UNKNOWN): 1,
    }


def test_early_versions_publish_eagles_draft_extend_too_early() -> None:
    scheduler, draft = _eagle(Border(draft_extend_declares=False))
    scheduler.step("DECODE", partial(scheduler.draft_extend, draft, publishes=True))
    (kind,) = scheduler.ledger.cells
    assert (kind.declared, kind.resolved, kind.fence) == (UNKNOWN, PRE, FINE)
    assert scheduler.phases.unsound_seen


@pytest.mark.parametrize(("declared", "resolved"), [("PRE_REPLAY", PRE), ("IN_REPLAY", POST), ("POST_REPLAY", POST)])
def test_late_versions_publish_draft_extend_where_it_is_sound(declared: str, resolved: SharedReadEnds) -> None:
    scheduler, draft = _eagle(Border())
    draft.draft_extend_attn_backend = Backend(DRAFT_EXTEND_V2=declared)
    scheduler.step("DECODE", partial(scheduler.draft_extend, draft, publishes=True))
    assert [kind.resolved for kind in scheduler.ledger.cells] == [resolved]
    assert not scheduler.phases.unsound_seen
