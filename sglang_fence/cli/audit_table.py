"""What ``sglang-fence audit`` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from sglang_fence.audit.cases import CANDIDATES
from sglang_fence.audit.verdicts import Status
from sglang_fence.observe.counting import many

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from sglang_fence.audit.cases import Case
    from sglang_fence.audit.matrix import CaseReport
    from sglang_fence.audit.verdicts import CaseVerdict, ClaimVerdict, EndVerdict

_COLOURS = {Status.SOUND: "green", Status.UNSOUND: "red", Status.NOT_DETERMINISTIC: "yellow"}


def print_report(console: Console, report: CaseReport, *, briefly: bool) -> None:
    """Print one case; ``briefly``: only where something is wrong."""
    if briefly and not (report.unsound or report.missed or report.disagreements or report.poisoned.not_done):
        return
    if not report.missed:
        console.print(_table(report.poisoned))
    _lines(console, report.sentences())


def print_summary(console: Console, reports: Sequence[CaseReport], left: Sequence[Case]) -> None:
    """Print what all of it comes to."""
    unsound = sum(report.unsound for report in reports)
    missed = sum(bool(report.missed) for report in reports)
    differing = sum(bool(report.disagreements) for report in reports)
    claims = sum(len(report.poisoned.claims) for report in reports if not report.missed)
    _lines(
        console,
        [
            (
                f"{many(len(reports), 'case')}, {many(claims, 'claim')}; cases with an unsound end: {unsound},"
                f" with a plant that was missed: {missed}, in which experiment and order differ: {differing}."
            ),
            *(f"Not done: {case}." for case in left),
        ],
    )


def _table(verdict: CaseVerdict) -> Table:
    table = Table(title=f"{verdict.case}, by {verdict.by}", title_justify="left")
    for column in ("claim", "declared", "verdict", *(ends.name for ends in CANDIDATES), "tightest", "cost µs"):
        table.add_column(column)
    for one in verdict.claims:
        tightest = one.tightest
        table.add_row(
            str(one.claim),
            one.declared.name if one.declared is one.resolved else f"{one.declared.name} → {one.resolved.name}",
            _verdict(one),
            *(_end(one.ends.get(ends)) for ends in CANDIDATES),
            "" if tightest is None else tightest.name,
            "" if one.cost_us is None else f"{one.cost_us:.1f}",
        )
    return table


def _verdict(one: ClaimVerdict) -> str:
    return _coloured(one.status, one.status.value)


def _end(found: EndVerdict | None) -> str:
    if found is None or found.status is Status.NOT_EXERCISED:
        return "–"
    runs, diverged = (sum(getattr(one, name) for one in found.buffers) for name in ("runs", "diverged"))
    return _coloured(found.status, f"{diverged} of {runs}")


def _coloured(status: Status, text: str) -> str:
    colour = _COLOURS.get(status)
    return text if colour is None else f"[{colour}]{text}[/{colour}]"


def _lines(console: Console, lines: Sequence[str]) -> None:
    for line in lines:
        console.print(line, markup=False, highlight=False)
