"""What a page says of single steps and of the comparison, as JSON; all else is in what it was made of."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from sglang_fence.cli.report.choosing import chosen
from sglang_fence.cli.report.comparing import cautions, compare, why_none

if TYPE_CHECKING:
    from sglang_fence.cli.report.comparing import Side
    from sglang_fence.cli.report.facts import RunFacts

SCHEMA = "sglang-fence.report/1"


def to_json(run: RunFacts, other: RunFacts | None = None) -> dict[str, Any]:
    """Return it as plain values. Times are in µs; None is what wasn't measured."""
    comparison = compare(run, other)
    return {
        "schema": SCHEMA,
        "run": {"name": run.title, "kind": run.kind, **run.setting},
        "against": None if other is None else {"name": other.title, "kind": other.kind, **other.setting},
        "cautions": cautions(run, other),
        "sums": run.sums,
        "notes": list(run.notes),
        "shown": [
            {"title": pick.title, "why": pick.why, "drawn": pick.drawable, "step": asdict(pick.step)}
            for pick in chosen(run)
        ],
        "comparison": None
        if comparison is None
        else {"mode": comparison.mode, "sides": [_side(side) for side in comparison.sides]},
        "not_compared": why_none(other) if comparison is None else None,
    }


def _side(side: Side) -> dict[str, Any]:
    spread = {
        f"{name}_us": dict(zip(("p50", "p99"), values, strict=True))
        for name, values in (("slack", side.slack), ("wait", side.wait), ("forward", side.forward))
    }
    return {"key": side.key, "title": side.title, "steps": side.steps, **spread}
