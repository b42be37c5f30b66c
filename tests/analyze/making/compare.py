"""A capture against the observer's own record of the same run, step by step.

Three accounts of one moment, the end of shared reads, are set side by side, each as a slack (the forward's end less
that moment, both on one clock):

* the observer's: it copies the moment, and reads timing events;
* the nodes': the marker lies between the node before it and the node behind it, two slacks that bracket it;
* the witness's: a kernel that waited for the same event (see ``serve``), less what such a kernel is late by.

The tool slows the host down, so that records and launches may come when what they stand behind has passed. Then an
account tells of the host and not of the device; ``lateness`` says in which steps, and what is left without that.
``releases`` says when the device let go of the two streams that waited for one event, which needn't be at once.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from sglang_fence.analyze.report import analyse
from sglang_fence.contract import FenceKind
from tests.analyze.making.differing import MEDIAN_BOUND_US, P99_BOUND_US, differences, spread
from tests.analyze.making.lateness import Calibration, late_records, lateness
from tests.analyze.making.releases import releases
from tests.analyze.making.witnessing import witnessed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from tests.analyze.making.lateness import Pair
    from tests.analyze.making.witnessing import Sight

WARM_UP = 20
"""Steps that are left out: the first replays of a graph load it."""


def compare(
    path: Path,
    record: Mapping[str, Any],
    told: Mapping[str, Any] | None = None,
    keep: Callable[[list[dict[str, Any]]], None] | None = None,
) -> dict[str, Any]:
    """Return the differences, in µs, as median and as p50, p99 and maximum of what is left around it.

    Args:
        path: the capture.
        record: what ``sglang-fence run --record`` wrote.
        told: what ``serve --witness`` wrote; without it, nothing is corrected for what came late.
        keep: gets what each step is compared by, before anything is made of it.
    """
    sight = witnessed(path)
    known = Calibration.of(sight, told or {})
    pairs = _pairs(path, sight, record)
    offset = known.witness_us
    if keep is not None:
        keep(_moments(pairs))
    return {
        "steps": len(pairs),
        "witness_late_us": spread([ns / 1e3 for ns in sight.late_ns]),
        "late_record_us": spread(late_records(sight, told or {})),
        "offsets": {name: round(value, 3) for name, value in known.offsets.items()},
        "observer_slack_us": spread([row["slack_us"] for row, *_ in pairs]),
        "observer_forward_us": spread([row["forward_us"] for row, *_ in pairs if row["forward_us"] is not None]),
        "forward_observer_less_capture": differences(
            (row["forward_us"], (one.forward_end - step.began) / 1e3)
            for row, one, step in pairs
            if row["forward_us"] is not None and step is not None and step.began is not None
        ),
        "slack_observer_less_witness": differences(
            (row["slack_us"], (one.forward_end - one.began) / 1e3 + offset)
            for row, one, _ in pairs
            if one.began is not None
        ),
        "wait_observer_less_witness": differences(
            (row["wait_us"], max(0.0, (one.began - one.waited_from) / 1e3 - offset))
            for row, one, _ in pairs
            if one.began is not None
        ),
        "slack_observer_less_node_before_marker": differences(_nodes(pairs, "slack")),
        "slack_observer_less_node_behind_marker": differences(_nodes(pairs, "slack_least")),
        "gap_at_marker_us": spread(
            [
                (step.reads_end_latest - step.reads_end) / 1e3
                for *_, step in pairs
                if step is not None and step.reads_end is not None and step.reads_end_latest is not None
            ],
        ),
        "witness_place_in_gap": spread(list(_places(pairs, offset))),
        "observer_within_bracket": _within(pairs),
        "lateness": lateness(pairs, known),
        "releases": releases(pairs, known),
        "bounds_us": {"median": MEDIAN_BOUND_US, "p99": P99_BOUND_US},
    }


def _moments(pairs: Iterable[Pair]) -> list[dict[str, Any]]:
    """Return what the capture says of each step, in ns of its clock, beside what the observer said of it, in µs."""
    return [
        {
            "observer": {key: row[key] for key in ("slack_us", "wait_us", "forward_us")},
            "capture": asdict(one),
            "marker": None if step is None else [step.reads_end, step.reads_end_latest],
        }
        for row, one, step in pairs
    ]


def _pairs(path: Path, sight: Sight, record: Mapping[str, Any]) -> list[Pair]:
    steps = {step.number: step for step in analyse(path).steps}
    fine = [row for row in record["steps"] if row["fence"] == FenceKind.FINE and row["step"] >= WARM_UP]
    rows = [row for row in fine if None not in {row["slack_us"], row["wait_us"]}]
    return [(row, sight.steps[row["step"]], steps.get(row["step"])) for row in rows if row["step"] in sight.steps]


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


def spread_of_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the observer measured of fine steps, to see what a tool changes in it."""
    rows = [row for row in record["steps"] if row["fence"] == FenceKind.FINE and row["step"] >= WARM_UP]
    keys = ("slack_us", "wait_us", "forward_us")
    found: dict[str, Any] = {
        f"observer_{key}": spread([row[key] for row in rows if row[key] is not None]) for key in keys
    }
    return found | {"steps": len(rows)}
