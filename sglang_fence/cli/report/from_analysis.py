"""The analysis of a capture, as ``sglang-fence nsys --json`` writes it: its moments alone are drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sglang_fence.cli.report.checking import count, duration, moment, us, word
from sglang_fence.cli.report.facts import (
    FORWARD,
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
from sglang_fence.observe.counting import many

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def facts_of_analysis(title: str, told: Mapping[str, Any]) -> RunFacts:
    """Return what a page shows of it.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: it isn't whole.
    """
    steps: Sequence[Mapping[str, Any]] = told["steps"]
    rows = tuple(_row(index, step) for index, step in enumerate(steps))
    fence: dict[str, int] = {kind.value: 0 for kind in FenceKind}
    for row in rows:
        fence[row.fence] = fence.get(row.fence, 0) + 1
    return RunFacts(
        title=title,
        kind="the analysis of a capture",
        figures=(
            Figure("steps", "steps", len(rows)),
            Figure("named", "barriers", "named by NVTX ranges" if told["named"] else "inferred"),
        ),
        fence={kind: count for kind, count in fence.items() if count},
        modes=tuple(_mode(row, rows) for row in told["summary"]),
        fallbacks=tuple(_fallbacks(rows)),
        steps=rows,
        candidates=tuple(row for row, step in zip(rows, steps, strict=True) if step["began_us"] is not None),
        draw=lambda chosen: [_timeline(step, steps[step.index]) for step in chosen],
        sums=lost_slack_sums(sum(row.coarse for row in rows), sum(row.coarse and row.lost is not None for row in rows)),
        lost_means="lost slack",
        notes=(
            *map(word, told["missing"]),
            *map(word, told["inferred"]),
            "For the host and each kernel, give the capture itself.",
        ),
    )


def _row(index: int, step: Mapping[str, Any]) -> StepRow:
    began, end = us(step["began_us"]), us(step["forward_end_us"])
    return StepRow(
        index=index,
        number=None if step["step"] is None else count(step["step"]),
        mode=word(step["mode"]),
        fence=word(step["fence"] or "unknown"),
        reason=None,
        ends=None if step["ends"] is None else word(step["ends"]).upper(),
        slack=duration(step["slack_us"]),
        wait=duration(step["wait_us"]),
        forward=None if began is None or end is None else round(end - began, 3),
        lost=duration(step["lost_slack_us"]),
    )


def _mode(row: Mapping[str, Any], rows: Sequence[StepRow]) -> ModeRow:
    ends: dict[str, int] = {}
    for step in rows:
        if step.mode == row["mode"] and step.ends is not None:
            ends[step.ends] = ends.get(step.ends, 0) + 1
    return ModeRow(
        mode=word(row["mode"]),
        steps=count(row["steps"]),
        fence={FenceKind.FINE.value: count(row["fine"]), FenceKind.COARSE.value: count(row["coarse"])},
        ends=counts(ends),
        slack_p50=duration(row["slack_p50_us"]),
        slack_p99=duration(row["slack_p99_us"]),
        wait_p50=duration(row["wait_p50_us"]),
        wait_p99=duration(row["wait_p99_us"]),
        lost_us=duration(row["lost_slack_us"]),
    )


def _fallbacks(rows: Sequence[StepRow]) -> list[Fallback]:
    by_mode: dict[str, list[StepRow]] = {}
    for row in rows:
        if row.coarse:
            by_mode.setdefault(row.mode, []).append(row)
    made: list[Fallback] = []
    for mode, found in by_mode.items():
        lost = [row.lost for row in found if row.lost is not None]
        known = round(sum(lost), 3) if lost else None
        made.append(Fallback(mode, "not in a capture", None, len(found), None, 0, known, len(lost)))
    return made


def _timeline(row: StepRow, step: Mapping[str, Any]) -> Timeline:
    moments = [us(step[key]) for key in ("began_us", "waited_from_us", "released_us", "forward_end_us")]
    known = [found for found in moments if found is not None]
    launched = [moment(replay["launched_us"]) for replay in step["replays"] if replay["launched_us"] is not None]
    zero = min([*known, *launched])

    def since(value: Any) -> float | None:  # noqa: ANN401 - whatever the file holds
        found = us(value)
        return None if found is None else round(found - zero, 3)

    blocks: list[Block] = []
    for replay in step["replays"]:
        start, end = moment(replay["start_us"]) - zero, moment(replay["end_us"]) - zero
        nodes = many(count(replay["nodes"]), "node")
        blocks.append(Block(FORWARD, "graph", start, end, category_of("graph"), nodes))
    if step["waited_from_us"] is not None and step["released_us"] is not None and step["wait_us"]:
        start, end = step["waited_from_us"] - zero, step["released_us"] - zero
        blocks.append(Block(SCHEDULE, "wait", start, end, category_of("wait")))
    return Timeline(
        row,
        1.03 * (max(known) - zero),
        tuple(blocks),
        waited_from=since(step["waited_from_us"]),
        reads_end=since(step["reads_end_us"]),
        reads_end_latest=since(step["reads_end_latest_us"]),
        forward_end=since(step["forward_end_us"]),
    )
