"""The analysis as JSON. Times are in µs from the first moment that the steps show, in launch order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.analyze.summary import mode_of

if TYPE_CHECKING:
    from sglang_fence.analyze.report import Report
    from sglang_fence.analyze.steps import Step
    from sglang_fence.analyze.summary import ModeSummary
    from sglang_fence.analyze.work import Replay

JsonValue = str | int | float | bool | None | list["JsonValue"] | dict[str, "JsonValue"]


def to_json(report: Report) -> dict[str, JsonValue]:
    """Return the analysis as plain values."""
    processes = {process: index for index, process in enumerate(dict.fromkeys(step.process for step in report.steps))}
    moments = [moment for step in report.steps for moment in (step.began, step.forward_end) if moment is not None]
    zero = min([*moments, *(replay.start for step in report.steps for replay in step.replays)], default=0)
    return {
        "schema": 1,
        "named": report.named,
        "inferred": list(report.inferred),
        "missing": list(report.missing),
        "summary": [_summary(row) for row in report.summary],
        "steps": [_step(report, step, processes[step.process], zero) for step in report.steps],
    }


def _us(ns: int | None, zero: int = 0) -> float | None:
    return None if ns is None else round((ns - zero) / 1000, 3)


def _summary(row: ModeSummary) -> JsonValue:
    return {
        "mode": row.mode,
        "steps": row.steps,
        "fine": row.fine,
        "coarse": row.coarse,
        "slack_p50_us": _us(row.slack_p50),
        "slack_p99_us": _us(row.slack_p99),
        "wait_p50_us": _us(row.wait_p50),
        "wait_p99_us": _us(row.wait_p99),
        "lost_slack_us": _us(row.lost_slack),
        "lost_slack_from": row.lost_slack_from,
    }


def _step(report: Report, step: Step, process: int, zero: int) -> JsonValue:
    return {
        "process": process,
        "step": step.number,
        "mode": mode_of(step),
        "fence": step.fence,
        "ends": None if step.ends is None else step.ends.name.lower(),
        "streams_say": step.streams_say,
        "forward_stream": step.forward_stream,
        "schedule_stream": step.schedule_stream,
        "began_us": _us(step.began, zero),
        "reads_end_us": _us(step.reads_end, zero),
        "reads_end_latest_us": _us(step.reads_end_latest, zero),
        "forward_end_us": _us(step.forward_end, zero),
        "waited_from_us": _us(step.waited_from, zero),
        "released_us": _us(step.released, zero),
        "next_work_us": _us(step.next_work, zero),
        "slack_us": _us(step.slack),
        "slack_least_us": _us(step.slack_least),
        "wait_us": _us(step.wait),
        "observer_late_us": _us(step.observer_late),
        "lost_slack_us": _us(step.lost_slack),
        "lost_slack_basis": step.basis,
        "bound_to_earlier_step": step.earlier,
        "replays": [_replay(report, step, replay, zero) for replay in step.replays],
    }


def _replay(report: Report, step: Step, replay: Replay, zero: int) -> JsonValue:
    shape = None if replay.graph is None else report.shapes.get((step.process, replay.graph))
    preparation = None if shape is None else shape.preparation
    return {
        "graph": replay.graph,
        "launched_us": _us(report.launched.get((step.process, replay.correlation)), zero),
        "start_us": _us(replay.start, zero),
        "end_us": _us(replay.end, zero),
        "nodes": replay.nodes,
        "preparation_nodes": None if preparation is None else list(preparation),
        "marker_node": None if shape is None else shape.marker,
    }
