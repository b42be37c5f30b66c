"""What a run came to: as JSON, and as a table."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rich.table import Table

from sglang_fence.contract import FenceKind
from sglang_fence.observe.summary import ModeSummary, Summary, percentiles

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from sglang_fence.engine.engine import Engine
    from sglang_fence.engine.requests import Request
    from sglang_fence.engine.scheduler import Scheduler
    from sglang_fence.observe.record import Phase

_SHOWN = 3
"""Outputs that the report shows."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The figures of one run."""

    device: str
    policy: str
    requests: Sequence[Request]
    steps: int
    retractions: int
    acceptance: float | None
    """Share of drafts that verification accepted; None without speculation."""
    cached_tokens: int
    seconds: float
    """Serving time: virtual on the simulated device, so that fences can be compared; wall time elsewhere."""
    wall_seconds: float
    summary: Summary
    hazards: list[dict[str, Any]]
    hazard_count: int
    unresolved: int

    @classmethod
    def of(
        cls,
        engine: Engine,
        scheduler: Scheduler,
        summary: Summary,
        requests: Sequence[Request],
        wall_seconds: float,
    ) -> Outcome:
        """Collect them after the engine has served."""
        device = engine.device
        hazards = [asdict(hazard) | {"rows": list(hazard.rows)} for hazard in getattr(device, "hazards", [])]
        return cls(
            device=device.name,
            policy=engine.policy.why if engine.options.overlap else "none, a loop without overlap needs no barrier",
            requests=requests,
            steps=scheduler.steps,
            retractions=scheduler.retractions,
            acceptance=scheduler.acceptance,
            cached_tokens=engine.memory.cached_tokens,
            seconds=wall_seconds if scheduler.virtual_seconds is None else scheduler.virtual_seconds,
            wall_seconds=wall_seconds,
            summary=summary,
            hazards=hazards,
            hazard_count=getattr(device, "hazard_count", 0),
            unresolved=engine.probe.unresolved,
        )

    @property
    def tokens(self) -> int:
        """Tokens generated."""
        return sum(len(request.output) for request in self.requests)

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens a second of serving time; None where that took no time, in virtual time without costs."""
        return self.tokens / self.seconds if self.seconds else None

    def to_json(self) -> dict[str, Any]:
        """Return the figures as the ``--json`` file has them."""
        total = self.summary.total()
        return {
            "device": self.device,
            "policy": self.policy,
            "requests": len(self.requests),
            "failed": sum(request.error is not None for request in self.requests),
            "steps": self.steps,
            "tokens": self.tokens,
            "tokens_per_s": None if self.tokens_per_s is None else round(self.tokens_per_s, 3),
            "wall_s": round(self.wall_seconds, 3),
            "retractions": self.retractions,
            "acceptance": self.acceptance,
            "cached_tokens": self.cached_tokens,
            "fence": {kind.value: total.fence[kind.value] for kind in FenceKind},
            "reasons": dict(total.reasons),
            "modes": {mode: _mode_json(one) for mode, one in self.summary.by_mode().items()},
            "fallbacks": self.summary.fallbacks(),
            "phases": [
                _phase_json(step, phase, count) for (step, phase), count in self.summary.phases_by_mode().items()
            ],
            "downgrades": dict(total.downgrades),
            "lost_us": round(total.lost_us, 3),
            "slack_us": percentiles(total.slack_us),
            "wait_us": percentiles(total.wait_us),
            "unresolved": self.unresolved,
            "hazards": self.hazards,
            "hazard_count": self.hazard_count,
        }


def _phase_json(step: str, phase: Phase, count: int) -> dict[str, Any]:
    return {
        "step": step,
        "mode": phase.mode.value,
        "runner": phase.role,
        "backend": phase.backend,
        "declared": phase.declared.name,
        "resolved": phase.resolved.name,
        "downgrade": phase.downgrade,
        "count": count,
    }


def _mode_json(mode: ModeSummary) -> dict[str, Any]:
    return {
        "steps": mode.steps,
        "declared": dict(mode.declared),
        "resolved": dict(mode.resolved),
        "fence": dict(mode.fence),
        "reasons": dict(mode.reasons),
        "downgrades": dict(mode.downgrades),
        "lost_us": round(mode.lost_us, 3),
        "slack_us": percentiles(mode.slack_us),
        "wait_us": percentiles(mode.wait_us),
    }


def print_report(outcome: Outcome, console: Console) -> None:
    """Print some of the outputs, the table, and each hazard on a line of its own."""
    for request in [request for request in outcome.requests if request.error is None][:_SHOWN]:
        console.print(
            f"{request.id}: {len(request.prompt)} prompt tokens → {request.output} ({request.finish_reason})",
            markup=False,
            highlight=False,
        )
    console.print(_table(outcome))
    if any(phase.role == "draft" for _, phase in outcome.summary.phases_by_mode()):
        console.print(_phases(outcome))
    rate = "–" if outcome.tokens_per_s is None else f"{outcome.tokens_per_s:,.0f}"
    clock = "virtual time" if outcome.device == "simulated" else "wall time"
    console.print(
        f"{outcome.device}: {len(outcome.requests)} requests, {outcome.steps} steps, {outcome.tokens} tokens,"
        f" {rate} tokens/s ({clock}); {outcome.retractions} retractions,"
        f"{'' if outcome.acceptance is None else f' {outcome.acceptance:.3f} of drafts accepted,'}"
        f" {outcome.cached_tokens} prompt tokens from the prefix cache; barrier: {outcome.policy}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    if outcome.device == "simulated":
        console.print(f"hazards: {outcome.hazard_count}", highlight=False)
    for hazard in outcome.hazards:
        console.print(_hazard_line(hazard), markup=False, highlight=False, soft_wrap=True)
    if outcome.hazard_count > len(outcome.hazards):
        console.print(f"… and {outcome.hazard_count - len(outcome.hazards)} more", highlight=False)


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
