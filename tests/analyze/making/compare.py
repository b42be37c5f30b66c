"""A capture against the observer's own record of the same run, step by step.

Three accounts of one moment, the end of shared reads, are set side by side, each as a slack (the forward's end less
that moment, both on one clock):

* the observer's: it copies the moment, and reads timing events;
* the nodes': the marker lies between the node before it and the node behind it, two slacks that bracket it;
* the witness's: a kernel that waited for the same event (see ``serve``), less what such a kernel is late by.

Where the observer and the witness agree and the nodes are far apart, the disagreement is in the gap that the tool put
between two nodes, and where in the gap the witness ran says which node to believe.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from sglang_fence.analyze.capture import opened
from sglang_fence.analyze.graphs import graph_shapes
from sglang_fence.analyze.ranges import our_ranges
from sglang_fence.analyze.report import analyse
from sglang_fence.analyze.waits import stream_waits
from sglang_fence.analyze.work import stream_work
from sglang_fence.contract import FenceKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from sglang_fence.analyze.ranges import NamedRange
    from sglang_fence.analyze.steps import Step
    from sglang_fence.analyze.waits import Wait
    from sglang_fence.analyze.work import StreamKey, StreamWork

MEDIAN_BOUND_US, P99_BOUND_US = 2.0, 10.0
WARM_UP = 20
"""Steps that are left out: the first replays of a graph load it."""


@dataclass(frozen=True, slots=True)
class Witnessed:
    """What the capture says of a step without looking into a graph. Times are in ns of its clock."""

    step: int
    forward_end: int
    waited_from: int
    began: int | None
    """The witness's kernel behind the end of shared reads; None where there was none."""


def compare(path: Path, record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the differences, in µs, as median and as p50, p99 and maximum of what is left around it."""
    seen, late = witnessed(path)
    steps = {step.number: step for step in analyse(path).steps}
    fine = [row for row in record["steps"] if row["fence"] == FenceKind.FINE and row["step"] >= WARM_UP]
    rows = [row for row in fine if None not in {row["slack_us"], row["wait_us"]}]
    pairs = [(row, seen[row["step"]], steps.get(row["step"])) for row in rows if row["step"] in seen]
    offset = median(late) / 1e3 if late else 0.0
    return {
        "steps": len(pairs),
        "witness_late_us": _spread([ns / 1e3 for ns in late]),
        "observer_slack_us": _spread([row["slack_us"] for row, *_ in pairs]),
        "observer_forward_us": _spread([row["forward_us"] for row, *_ in pairs if row["forward_us"] is not None]),
        "forward_observer_less_capture": _differences(
            (row["forward_us"], (one.forward_end - step.began) / 1e3)
            for row, one, step in pairs
            if row["forward_us"] is not None and step is not None and step.began is not None
        ),
        "slack_observer_less_witness": _differences(
            (row["slack_us"], (one.forward_end - one.began) / 1e3 + offset)
            for row, one, _ in pairs
            if one.began is not None
        ),
        "wait_observer_less_witness": _differences(
            (row["wait_us"], max(0.0, (one.began - one.waited_from) / 1e3 - offset))
            for row, one, _ in pairs
            if one.began is not None
        ),
        "slack_observer_less_node_before_marker": _differences(_nodes(pairs, "slack")),
        "slack_observer_less_node_behind_marker": _differences(_nodes(pairs, "slack_least")),
        "gap_at_marker_us": _spread(
            [
                (step.reads_end_latest - step.reads_end) / 1e3
                for *_, step in pairs
                if step is not None and step.reads_end is not None and step.reads_end_latest is not None
            ],
        ),
        "witness_place_in_gap": _spread(list(_places(pairs, offset))),
        "observer_within_bracket": _within(pairs),
        "bounds_us": {"median": MEDIAN_BOUND_US, "p99": P99_BOUND_US},
    }


Pair = tuple[Any, Witnessed, "Step | None"]


def _nodes(pairs: Iterable[Pair], which: str) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for row, _, step in pairs:
        ns = None if step is None else getattr(step, which)
        if ns is not None:
            found.append((row["slack_us"], ns / 1e3))
    return found


def _places(pairs: Iterable[Pair], offset: float) -> Iterable[float]:
    """Yield where in the gap the marker passed by the witness: 0 at the node before it, 1 at the node behind it."""
    for _, one, step in pairs:
        if step is None or one.began is None or step.reads_end is None or step.reads_end_latest is None:
            continue
        gap = (step.reads_end_latest - step.reads_end) / 1e3
        if gap > 0:
            yield ((one.began - step.reads_end) / 1e3 - offset) / gap


def _within(pairs: Iterable[Pair]) -> float | None:
    """Return the share of steps in which the observer's slack lies between the two nodes', give or take the bound."""
    inside: list[bool] = []
    for row, _, step in pairs:
        if step is None or step.slack is None or step.slack_least is None:
            continue
        low, high = step.slack_least / 1e3, step.slack / 1e3
        inside.append(low - MEDIAN_BOUND_US <= row["slack_us"] <= high + MEDIAN_BOUND_US)
    return sum(inside) / len(inside) if inside else None


def witnessed(path: Path) -> tuple[dict[int, Witnessed], list[int]]:
    """Return what the witness saw, by step, and how late its kernels start (ns), from the calibration."""
    with opened(path) as capture:
        ranges = our_ranges(capture)
        streams = stream_work(capture, graph_shapes(capture, ranges))
        waits = sorted(stream_waits(capture), key=lambda wait: wait.called)
    forward = max((key for key, work in streams.items() if work.replays), key=lambda key: len(streams[key].replays))
    barriers = [found for found in ranges if found.name == "barrier" and found.step >= 0]
    seen: dict[int, Witnessed] = {}
    witness: StreamKey | None = None
    for barrier in barriers:
        inside = _inside(barrier, waits, streams)
        if not inside:
            continue
        fence, others = inside[-1], [wait for wait in inside[:-1] if wait.stream != inside[-1].stream]
        schedule = streams[fence.stream]
        end, idle = streams[forward].done_before(fence.correlation), schedule.done_before(fence.correlation)
        if end is None:
            continue
        began = None
        if others:
            witness = others[-1].stream
            began = streams[witness].first_after(others[-1].correlation)
        seen[barrier.step] = Witnessed(barrier.step, end, max(fence.called, idle or 0), began)
    first = barriers[0].start if barriers else 0
    return seen, _late(waits, streams, witness, first)


def _inside(barrier: NamedRange, waits: Sequence[Wait], streams: Mapping[StreamKey, StreamWork]) -> list[Wait]:
    first = bisect_left(waits, barrier.start, key=lambda wait: wait.called)
    last = bisect_left(waits, barrier.end, key=lambda wait: wait.called)
    return [wait for wait in waits[first:last] if wait.stream in streams and wait.stream[0] == barrier.process]


def _late(
    waits: Iterable[Wait],
    streams: Mapping[StreamKey, StreamWork],
    witness: StreamKey | None,
    before: int,
) -> list[int]:
    if witness is None:
        return []
    late: list[int] = []
    for wait in waits:
        if wait.stream != witness or wait.called >= before or wait.record is None or wait.record.stream not in streams:
            continue
        end = streams[wait.record.stream].done_before(wait.record.correlation)
        began = streams[witness].first_after(wait.correlation)
        if end is not None and began is not None:
            late.append(began - end)
    return late


def _differences(pairs: Iterable[tuple[float, float]]) -> dict[str, Any] | None:
    found = [one - other for one, other in pairs]
    if not found:
        return None
    middle = median(found)
    around = sorted(abs(one - middle) for one in found)
    plain = sorted(abs(one) for one in found)
    return {
        "steps": len(found),
        "median": round(middle, 3),
        "around_median_p99": round(_rank(around, 0.99), 3),
        "absolute_p50": round(_rank(plain, 0.5), 3),
        "absolute_p99": round(_rank(plain, 0.99), 3),
        "absolute_max": round(plain[-1], 3),
        "within_bounds": abs(middle) <= MEDIAN_BOUND_US and _rank(plain, 0.99) <= P99_BOUND_US,
    }


def _spread(values: Sequence[float]) -> dict[str, float] | None:
    if not values:
        return None
    ordered = sorted(values)
    return {f"p{share * 100:g}": round(_rank(ordered, share), 3) for share in (0.01, 0.5, 0.99)}


def _rank(ordered: Sequence[float], share: float) -> float:
    return ordered[max(0, min(len(ordered) - 1, round(share * len(ordered) + 0.5) - 1))]


def spread_of_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the observer measured of fine steps, to see what a tool changes in it."""
    rows = [row for row in record["steps"] if row["fence"] == FenceKind.FINE and row["step"] >= WARM_UP]
    keys = ("slack_us", "wait_us", "forward_us")
    found: dict[str, Any] = {
        f"observer_{key}": _spread([row[key] for row in rows if row[key] is not None]) for key in keys
    }
    return found | {"steps": len(rows)}
