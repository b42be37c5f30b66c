"""What a run came to, for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table

from sglang_fence.observe.counting import noun
from sglang_fence.observe.summary import percentiles

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from sglang_fence.cli.outcome import Outcome
    from sglang_fence.observe.summary import ModeSummary

_SHOWN = 3
"""Outputs that the report shows."""


def print_report(outcome: Outcome, console: Console) -> None:
    """Print some of the outputs, the table, and each hazard on a line of its own."""
    for request in [request for request in outcome.requests if request.error is None][:_SHOWN]:
        console.print(
            f"{request.id}: {_count(len(request.prompt), 'prompt token')} → {request.output} ({request.finish_reason})",
            markup=False,
            highlight=False,
        )
    if outcome.observed:
        console.print(_table(outcome))
    else:
        console.print("What the fence did wasn't observed.", markup=False, highlight=False)
    if any(phase.role == "draft" for _, phase in outcome.summary.phases_by_mode()):
        console.print(_phases(outcome))
    rate = "–" if outcome.tokens_per_s is None else f"{outcome.tokens_per_s:,.0f}"
    clock = "virtual time" if outcome.device == "simulated" else "wall time"
    console.print(
        f"{outcome.device}: {_count(len(outcome.requests), 'request')}, {_count(outcome.steps, 'step')},"
        f" {_count(outcome.tokens, 'token')}, {rate} tokens/s ({clock}); {_count(outcome.retractions, 'retraction')},"
        f"{'' if outcome.acceptance is None else f' {outcome.acceptance:.3f} of drafts accepted,'}"
        f" {_count(outcome.cached_tokens, 'prompt token')} from the prefix cache; barrier: {outcome.policy}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    if outcome.device == "simulated":
        console.print(f"hazards: {_hazards(outcome.hazard_count)}", highlight=False)
    for hazard in outcome.hazards:
        console.print(_hazard_line(hazard), markup=False, highlight=False, soft_wrap=True)
    if outcome.hazard_count is not None and outcome.hazard_count > len(outcome.hazards):
        console.print(f"… and {outcome.hazard_count - len(outcome.hazards)} more", highlight=False)


def _count(count: int, one: str) -> str:
    return f"{count} {noun(count, one)}"


def _hazards(count: int | None) -> str:
    return "not checked" if count is None else str(count)


def _hazard_line(hazard: Mapping[str, Any]) -> str:
    first, second = (f"{hazard[which]} (step {hazard[which + '_step']})" for which in ("first", "second"))
    what = f"{hazard['kind']} {hazard['buffer']} rows {hazard['rows']}"
    return f"{what}: {first}, then {second}; missing: {hazard['missing']}"


def _table(outcome: Outcome) -> Table:
    """Narrow enough for a terminal of 80 columns."""
    table = Table(title="What the fence did", title_justify="left")
    for column in ("mode\nbackend", "declared\nresolved", "fence and reasons"):
        table.add_column(column, overflow="fold")
    for column in ("steps", "slack µs\np50 p90 p99", "wait µs\np50 p90 p99"):
        table.add_column(column, justify="right", overflow="fold")
    for (mode, backend), one in sorted(outcome.summary.modes.items()):
        table.add_row(
            f"{mode}\n{backend}",
            f"{_counts(one.declared)}\n{_counts(one.resolved)}",
            "\n".join(filter(None, (_counts(one.fence), _reasons(one)))),
            str(one.steps),
            _durations(one.slack_us),
            _durations(one.wait_us),
        )
    return table


def _phases(outcome: Outcome) -> Table:
    """Every phase of the steps, in the order of their first appearance."""
    table = Table(title="Phases", title_justify="left")
    for column in ("step", "phase", "runner\nbackend", "declared\nresolved"):
        table.add_column(column, overflow="fold")
    table.add_column("count", justify="right")
    for (step, phase), count in outcome.summary.phases_by_mode().items():
        ends = f"{phase.declared.name}\n{phase.resolved.name}"
        table.add_row(step, phase.mode.value, f"{phase.role}\n{phase.backend}", ends, str(count))
    return table


def _counts(counts: Mapping[str, int]) -> str:
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


def _reasons(mode: ModeSummary) -> str:
    reasons = [f"{name} {count}" for name, count in sorted(mode.reasons.items())]
    downgrades = [f"downgraded {count}: {cause}" for cause, count in sorted(mode.downgrades.items())]
    return "\n".join(reasons + downgrades)


def _durations(values: Sequence[float]) -> str:
    shares = percentiles(values)
    return "–" if shares["p50"] is None else " ".join(f"{shares[share]:,.1f}" for share in ("p50", "p90", "p99"))
