"""Steps and runs by hand, as short as they can be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sglang_fence.cli.report.facts import RunFacts, StepRow, Timeline

if TYPE_CHECKING:
    from collections.abc import Sequence


def row(
    index: int,
    *,
    fine: bool = True,
    fence: str | None = None,
    mode: str = "decode",
    slack: float | None = None,
    wait: float | None = None,
    forward: float | None = None,
    lost: float | None = None,
) -> StepRow:
    """Return a step whose number is its index."""
    return StepRow(
        index=index,
        number=index,
        mode=mode,
        fence=fence or ("fine" if fine else "coarse"),
        reason=None,
        ends=None,
        slack=slack,
        wait=wait,
        forward=forward,
        lost=lost,
    )


def run_of(
    steps: Sequence[StepRow],
    candidates: Sequence[StepRow] | None = None,
    **changes: Any,  # noqa: ANN401 - fields of a run
) -> RunFacts:
    """Return a run of such steps; ``candidates``: those that can be drawn, all if left out."""
    fields: dict[str, Any] = {
        "title": "run.json",
        "kind": "the record of a run",
        "figures": (),
        "fence": {"fine": sum(step.fine for step in steps), "coarse": sum(step.coarse for step in steps)},
        "modes": (),
        "fallbacks": (),
        "steps": tuple(steps),
        "candidates": tuple(steps if candidates is None else candidates),
        "draw": lambda wanted: [Timeline(step, 10.0, ()) for step in wanted],
        "sums": "",
    }
    return RunFacts(**fields | changes)
