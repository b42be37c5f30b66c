"""Cases audited both ways on the simulated device, and what the two have to agree in."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sglang_fence.audit.auditing import AuditOptions
from sglang_fence.audit.matrix import CaseReport, audit_case
from sglang_fence.audit.verdicts import Status
from sglang_fence.contract import SharedReadEnds

if TYPE_CHECKING:
    from sglang_fence.audit.cases import Case
    from sglang_fence.audit.verdicts import CaseVerdict, ClaimVerdict

PRE, IN, POST = SharedReadEnds.PRE_REPLAY, SharedReadEnds.IN_REPLAY, SharedReadEnds.POST_REPLAY
QUICK = AuditOptions(repeats=2)


def audited(case: Case, **changes: object) -> CaseReport:
    """Audit both ways."""
    return audit_case(case, "simulated", replace(QUICK, **changes))  # type: ignore[arg-type]


def name(case: Case) -> str:
    """Return a name for a test."""
    return f"{case.attention}-{case.speculative}-{case.graph}"


def claim_of(verdict: CaseVerdict, mode: str, *, scope: str = "phase", role: str = "target") -> ClaimVerdict:
    """Return the one claim about ``mode``."""
    (found,) = (
        one for one in verdict.claims if (one.claim.scope, one.claim.mode, one.claim.role) == (scope, mode, role)
    )
    return found


def check_sound(report: CaseReport) -> None:
    """Both call every declared end sound, agree in everything else as well, and were able to call it unsound."""
    assert report.missed == []
    assert report.disagreements == []
    assert report.ordered.hazards == []
    for verdict in (report.poisoned, report.ordered):
        assert verdict.claims
        assert {str(one.claim): one.status for one in verdict.claims if one.status is not Status.SOUND} == {}
        assert verdict.unheard == []
        assert verdict.not_done == []
        assert any(end.status is Status.UNSOUND for one in verdict.claims for end in one.ends.values())


def check_torn(verdict: ClaimVerdict, *buffers: str) -> None:
    """The declared end is unsound, by late reads of just these buffers."""
    assert verdict.status is Status.UNSOUND
    assert verdict.ends[verdict.resolved].torn == buffers
    for result in verdict.ends[verdict.resolved].buffers:
        if result.buffer in buffers:
            assert result.diverged == result.runs > 0
            assert result.rows
            assert result.first
