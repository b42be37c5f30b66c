"""Steps added up, by mode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sglang_fence.contract import FenceKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sglang_fence.analyze.steps import Step


@dataclass(frozen=True, slots=True)
class ModeSummary:
    """The steps of one mode. Times are in ns; None where no step shows one."""

    mode: str
    steps: int
    fine: int
    coarse: int
    slack_p50: int | None
    """Over fine steps."""

    slack_p99: int | None
    wait_p50: int | None
    wait_p99: int | None
    lost_slack: int | None
    """Over coarse steps, those whose end is only assumed included; None where it is known of none of them."""

    lost_slack_from: int
    """Coarse steps of which it is known."""


def mode_of(step: Step) -> str:
    """Return the step's mode; without our ranges, what the streams show: whether it replayed a graph, with a marker."""
    if step.mode is not None:
        return step.mode
    if not step.replays:
        return "eager"
    marked = any(replay.marker_after is not None for replay in step.replays)
    return "marked" if marked else "graph"


def summarise(steps: Iterable[Step]) -> list[ModeSummary]:
    """Return a summary for each mode, in order of appearance."""
    by_mode: dict[str, list[Step]] = {}
    for step in steps:
        by_mode.setdefault(mode_of(step), []).append(step)
    return [_summary(mode, found) for mode, found in by_mode.items()]


def _summary(mode: str, steps: Sequence[Step]) -> ModeSummary:
    slacks = sorted(step.slack for step in steps if step.fence is FenceKind.FINE and step.slack is not None)
    waits = sorted(step.wait for step in steps if step.wait is not None)
    lost = [step.lost_slack for step in steps if step.lost_slack is not None]
    coarse = sum(step.fence is FenceKind.COARSE for step in steps)
    return ModeSummary(
        mode=mode,
        steps=len(steps),
        fine=sum(step.fence is FenceKind.FINE for step in steps),
        coarse=coarse,
        slack_p50=percentile(slacks, 50),
        slack_p99=percentile(slacks, 99),
        wait_p50=percentile(waits, 50),
        wait_p99=percentile(waits, 99),
        lost_slack=sum(lost) if lost or not coarse else None,
        lost_slack_from=len(lost),
    )


def percentile(ordered: Sequence[int], percent: int) -> int | None:
    """Return the smallest value that is no less than so many percent of them; None of nothing."""
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)] if ordered else None
