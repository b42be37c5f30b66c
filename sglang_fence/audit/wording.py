"""The sentence that an author would put into the pull request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.audit.verdicts import Status
from sglang_fence.contract import SharedReadEnds

if TYPE_CHECKING:
    from sglang_fence.audit.verdicts import ClaimVerdict, EndVerdict

_MOST_ROWS = 6


def sentence(verdict: ClaimVerdict, by: str) -> str:
    """Say what was claimed, what was found, and whether an earlier end would do.

    Args:
        verdict: of one claim.
        by: how it was found, for the reader to judge.
    """
    claim, resolved = verdict.claim, verdict.resolved
    who = f"Step {claim.mode}" if claim.scope == "step" else f"{claim.backend} ({claim.role}, {claim.mode})"
    parts = [_claimed(who, verdict)]
    found = verdict.ends.get(resolved)
    if found is not None:
        parts.append(_found(found, by))
    parts.append(_earlier(verdict))
    return " ".join(part for part in parts if part)


def _claimed(who: str, verdict: ClaimVerdict) -> str:
    if verdict.resolved is SharedReadEnds.UNKNOWN:
        why = f" ({verdict.note})" if verdict.note and verdict.claim.scope == "step" else ""
        return f"{who} publishes no read end{why}: the fence is coarse, which is always sound."
    what = verdict.declared.name
    if verdict.resolved is not verdict.declared:
        what += f", resolved to {verdict.resolved.name}"
    outcome = {
        Status.SOUND: "sound",
        Status.UNSOUND: "UNSOUND",
        Status.NOT_EXERCISED: "not exercised",
        Status.NOT_DETERMINISTIC: "not to be told, since clean runs differ",
    }[verdict.status]
    verb = "is fenced at" if verdict.claim.scope == "step" else "declares"
    return f"{who} {verb} {what}: {outcome}."


def _found(found: EndVerdict, by: str) -> str:
    if found.status is Status.SOUND:
        runs = sum(result.runs for result in found.buffers)
        names = " and ".join(result.buffer for result in found.buffers if result.read) or "no buffer"
        return f"By {by}, overwriting {names} at that moment changed nothing in {runs} runs."
    if found.status is Status.UNSOUND:
        torn = "; ".join(
            f"{result.buffer}, rows {_rows(result.rows)}, in {result.diverged} of {result.runs} runs, first at"
            f" {result.first}"
            for result in found.buffers
            if result.diverged
        )
        return f"By {by}, it is read past that moment: {torn}."
    return f"({found.why}.)" if found.why else ""


def _earlier(verdict: ClaimVerdict) -> str:
    tightest, resolved = verdict.tightest, verdict.resolved
    if tightest is None:
        return "" if verdict.claim.scope == "step" else "No end that was tried is sound."
    if tightest < resolved:
        return f"{tightest.name} would be sound{_gain(verdict)}."
    if tightest > resolved:
        return f"The earliest sound end is {tightest.name}."
    refuted = [ends.name for ends, one in verdict.ends.items() if ends < resolved and one.status is Status.UNSOUND]
    return (
        f"No earlier end is sound: {' and '.join(refuted)} {'were' if len(refuted) > 1 else 'was'} refuted."
        if refuted
        else ""
    )


def _gain(verdict: ClaimVerdict) -> str:
    if not verdict.last:
        return ", and would change nothing: what follows in the step reads as well"
    if not verdict.cost_us:
        return ""
    return f", and would let the schedule stream go {verdict.cost_us:.1f} µs sooner a step"


def _rows(rows: tuple[int, ...]) -> str:
    shown = ", ".join(str(row) for row in rows[:_MOST_ROWS])
    return f"{shown} and {len(rows) - _MOST_ROWS} more" if len(rows) > _MOST_ROWS else shown or "unknown"
