"""What each committed capture is known to hold: a JSON file beside it, written from the run's own record.

The record is the observer's word, the capture the tool's: that both say the same of every step is what is tested. A
capture's file is written by ``tests/analyze/making/capture.py``, together with the capture.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sglang_fence.contract import FenceKind, SharedReadEnds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sglang_fence.analyze.report import Report
    from sglang_fence.analyze.steps import Step

DATA = Path(__file__).parents[1] / "data" / "nsys"
SUFFIX = ".sqlite.gz"
MOST_BYTES = 2_000_000
"""Of all captures together."""


def names(folder: Path = DATA) -> list[str]:
    """Return the names of the captures in a folder."""
    return sorted(path.name.removesuffix(SUFFIX) for path in folder.glob(f"*{SUFFIX}"))


def expected(name: str, folder: Path = DATA) -> dict[str, Any]:
    """Return what is known of a capture."""
    found: dict[str, Any] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return found


def unpack(name: str, target: Path, folder: Path = DATA) -> Path:
    """Write the capture's database to ``target``."""
    target.write_bytes(gzip.decompress((folder / f"{name}{SUFFIX}").read_bytes()))
    return target


def from_record(record: dict[str, Any], *, nodes: bool, steps: range | None = None) -> dict[str, Any]:
    """Make the expectation from what ``sglang-fence run --record`` wrote.

    Args:
        record: the file's content.
        nodes: whether the nodes of graphs are in the capture.
        steps: those that were captured; None: all.
    """
    rows = [row for row in record["steps"] if steps is None or row["step"] in steps]
    return {
        "named": True,
        "nodes": nodes,
        "steps": [
            {"step": row["step"], "mode": row["mode"], "fence": row["fence"], "ends": row["ends"]} for row in rows
        ],
    }


def unlike(report: Report, known: dict[str, Any]) -> list[str]:
    """Return in which ways an analysis differs from what is known of its capture; empty: in none."""
    said: list[str] = []
    if report.named is not known["named"]:
        said.append(f"named is {report.named}, and should be {known['named']}")
    steps = report.steps if not report.named else _within(report.steps, known["steps"])
    if len(steps) != len(known["steps"]):
        said.append(f"{len(steps)} steps were found, and {len(known['steps'])} are known")
    for step, row in zip(steps, known["steps"], strict=False):
        said += [f"step {row['step']}: {sentence}" for sentence in _unlike(step, row, nodes=known["nodes"])]
    return said


def _within(steps: Iterable[Step], rows: list[dict[str, Any]]) -> list[Step]:
    """Leave out what a capture of some steps has of its neighbours."""
    wanted = {row["step"] for row in rows}
    return [step for step in steps if step.number in wanted]


def _unlike(step: Step, row: dict[str, Any], *, nodes: bool) -> list[str]:
    fine = row["fence"] == FenceKind.FINE
    known: dict[str, Any] = {"fence": row["fence"]}
    if step.number is not None:
        known |= {"number": row["step"], "mode": row["mode"]}
    if nodes:
        known |= {"ends": SharedReadEnds[row["ends"]] if fine else None, "earlier": False, "overtaken": False}
    said = [
        f"{name} is {getattr(step, name)}, not {value}" for name, value in known.items() if value != getattr(step, name)
    ]
    return [*said, *_moments(step, fine=fine)] if nodes else said


def _moments(step: Step, *, fine: bool) -> list[str]:
    if None in {step.reads_end, step.forward_end, step.waited_from}:
        return ["a moment is missing"]
    if fine and not _in_order(step):
        return [f"its moments are out of order: {step}"]
    if not fine and step.slack != 0:
        return [f"it is coarse, and has a slack of {step.slack} ns"]
    return []


def _in_order(step: Step) -> bool:
    moments = [step.began, step.reads_end, step.reads_end_latest, step.forward_end]
    known = [moment for moment in moments if moment is not None]
    if step.ends is SharedReadEnds.PRE_REPLAY and step.began is not None:
        known = known[1:]  # the first work of a step may be what the record stands behind, or come after it
    return known == sorted(known) and step.slack is not None and step.slack >= 0
