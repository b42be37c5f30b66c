"""A capture of Nsight Systems, through the analysis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.analyze.report import analyse
from sglang_fence.analyze.summary import mode_of
from sglang_fence.analyze.timeline import step_views
from sglang_fence.cli.report.facts import (
    FORWARD,
    HOST,
    SCHEDULE,
    Block,
    Fallback,
    Figure,
    ModeRow,
    RunFacts,
    StepRow,
    Timeline,
)
from sglang_fence.cli.report.naming import category_of, counts, lost_slack_sums
from sglang_fence.contract import FenceKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from sglang_fence.analyze.report import Report
    from sglang_fence.analyze.steps import Step
    from sglang_fence.analyze.summary import ModeSummary
    from sglang_fence.analyze.timeline import Ran, StepView

UNKNOWN_FENCE = "unknown"
"""Of a step whose barrier the capture doesn't show."""


def facts_of_capture(path: Path) -> RunFacts:
    """Return what a page shows of it.

    Raises:
        ConfigError: it can't be read, or has nothing of CUDA in it.
    """
    report = analyse(path)
    rows = tuple(_row(index, step) for index, step in enumerate(report.steps))
    drawable = tuple(row for row, step in zip(rows, report.steps, strict=True) if step.began is not None)

    def draw(steps: Sequence[StepRow]) -> list[Timeline]:
        views = step_views(path, [report.steps[step.index] for step in steps])
        return [_timeline(step, view) for step, view in zip(steps, views, strict=True)]

    return RunFacts(
        title=path.name,
        kind="a capture of Nsight Systems",
        figures=_figures(report),
        fence=_fence(report.steps),
        modes=tuple(_mode(report, row) for row in report.summary),
        fallbacks=tuple(_fallbacks(report.steps)),
        steps=rows,
        candidates=drawable,
        draw=draw,
        sums=lost_slack_sums(sum(row.coarse for row in rows), sum(row.coarse and row.lost is not None for row in rows)),
        lost_means="lost slack",
        notes=(*report.missing, *report.inferred, "A capture says nothing of reasons, nor of what coarse steps cost."),
    )


def _figures(report: Report) -> tuple[Figure, ...]:
    replays = sum(len(step.replays) for step in report.steps)
    return (
        Figure("steps", "steps", len(report.steps)),
        Figure("replays", "graph replays", replays),
        Figure("named", "barriers", "named by NVTX ranges" if report.named else "inferred"),
    )


def _fence(steps: Iterable[Step]) -> dict[str, int]:
    found: dict[str, int] = {kind.value: 0 for kind in FenceKind}
    for step in steps:
        kind = UNKNOWN_FENCE if step.fence is None else step.fence.value
        found[kind] = found.get(kind, 0) + 1
    return {kind: count for kind, count in found.items() if count}


def _mode(report: Report, row: ModeSummary) -> ModeRow:
    ends: dict[str, int] = {}
    for step in report.steps:
        if mode_of(step) == row.mode and step.ends is not None:
            ends[step.ends.name] = ends.get(step.ends.name, 0) + 1
    return ModeRow(
        mode=row.mode,
        steps=row.steps,
        fence={FenceKind.FINE.value: row.fine, FenceKind.COARSE.value: row.coarse},
        ends=counts(ends),
        slack_p50=_us(row.slack_p50),
        slack_p99=_us(row.slack_p99),
        wait_p50=_us(row.wait_p50),
        wait_p99=_us(row.wait_p99),
        lost_us=_us(row.lost_slack),
    )


def _fallbacks(steps: Iterable[Step]) -> list[Fallback]:
    by_mode: dict[str, list[Step]] = {}
    for step in steps:
        if step.fence is FenceKind.COARSE:
            by_mode.setdefault(mode_of(step), []).append(step)
    made: list[Fallback] = []
    for mode, found in by_mode.items():
        lost = [step.lost_slack for step in found if step.lost_slack is not None]
        known = _us(sum(lost)) if lost else None
        made.append(Fallback(mode, "not in a capture", None, len(found), None, 0, known, len(lost)))
    return made


def _row(index: int, step: Step) -> StepRow:
    forward = None if step.began is None or step.forward_end is None else step.forward_end - step.began
    return StepRow(
        index=index,
        number=step.number,
        mode=mode_of(step),
        fence=UNKNOWN_FENCE if step.fence is None else step.fence.value,
        reason=None,
        ends=None if step.ends is None else step.ends.name,
        slack=_us(step.slack),
        wait=_us(step.wait),
        forward=_us(forward),
        lost=_us(step.lost_slack),
    )


def _timeline(row: StepRow, view: StepView) -> Timeline:
    step, zero = view.step, view.start

    def since(ns: int | None) -> float | None:
        return None if ns is None else (ns - zero) / 1e3

    blocks = [
        Block(
            HOST,
            found.name,
            max(0.0, (found.start - zero) / 1e3),
            min(view.end - zero, found.end - zero) / 1e3,
            category_of(found.name),
            f"of step {found.step}" if found.step != row.number else "",
            found.step != row.number,
        )
        for found in view.host
    ]
    blocks += [_ran(FORWARD, ran.kind, ran, view) for ran in view.forward]
    blocks += [_ran(SCHEDULE, "schedule work", ran, view) for ran in view.schedule]
    if step.waited_from is not None and step.released is not None and step.released > step.waited_from:
        wait = Block(SCHEDULE, "wait", since(step.waited_from) or 0.0, since(step.released) or 0.0, category_of("wait"))
        blocks.append(wait)
    return Timeline(
        row,
        (view.end - view.start) / 1e3,
        tuple(sorted(blocks, key=lambda block: (block.track, block.start, -block.end))),
        waited_from=since(step.waited_from),
        reads_end=since(step.reads_end),
        reads_end_latest=since(step.reads_end_latest),
        forward_end=since(step.forward_end),
    )


def _ran(track: str, name: str, ran: Ran, view: StepView) -> Block:
    step, zero = view.step, view.start
    before = track == FORWARD and step.began is not None and ran.end <= step.began
    behind = track == FORWARD and step.forward_end is not None and ran.start >= step.forward_end
    return Block(
        track,
        name,
        max(0.0, (ran.start - zero) / 1e3),
        min(view.end - zero, ran.end - zero) / 1e3,
        category_of(name),
        f"{ran.count} on the device" if ran.count > 1 else "",
        before or behind,
    )


def _us(ns: int | None) -> float | None:
    return None if ns is None else round(ns / 1000, 3)
