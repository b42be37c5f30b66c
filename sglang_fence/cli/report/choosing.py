"""Which steps a page shows: a typical one, the best, the worst, and a typical coarse one beside a typical fine one."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sglang_fence.cli.report.facts import StepRow


@dataclass(frozen=True, slots=True)
class Chosen:
    """A step, and why it is shown."""

    title: str
    why: str
    step: StepRow


def chosen(candidates: Sequence[StepRow]) -> list[Chosen]:
    """Return up to three steps: typical, best, worst. One that is two of them is shown once."""
    found: list[Chosen] = []
    fine, coarse = [one for one in candidates if one.fine], [one for one in candidates if one.coarse]
    usual = typical(fine or coarse)
    if usual is not None:
        what = "slack" if usual.fine else "wait"
        why = f"Of the {usual.fence} {usual.mode} steps, its {what} is the nearest to their median."
        found.append(Chosen("A typical step", why, usual))
    best = _most(fine, lambda step: step.slack)
    if best is not None:
        found.append(Chosen("The best step", "Of those that can be drawn, none gave more slack.", best))
    worst = _most(coarse, lambda step: step.lost)
    if worst is not None:
        found.append(Chosen("The worst step", "Of those that can be drawn, behind none was more lost.", worst))
    else:
        worst = _most(candidates, lambda step: step.wait)
        if worst is not None:
            found.append(Chosen("The worst step", "Of those that can be drawn, none stalled longer.", worst))
    kept: dict[int, Chosen] = {}
    for one in found:
        before = kept.get(one.step.index)
        if before is None:
            kept[one.step.index] = one
        else:
            title = f"{before.title}, and {one.title[0].lower()}{one.title[1:]}"
            kept[one.step.index] = Chosen(title, f"{before.why} {one.why}", one.step)
    return list(kept.values())


def typical(steps: Sequence[StepRow], mode: str | None = None) -> StepRow | None:
    """Return the step nearest to the median of those of the most frequent mode, or of ``mode`` where it is there."""
    modes = Counter(step.mode for step in steps)
    if not modes:
        return None
    wanted = mode if mode in modes else modes.most_common(1)[0][0]
    known = [(step, value) for step in steps if step.mode == wanted and (value := _measure(step)) is not None]
    if not known:
        return None
    middle = median(value for _, value in known)
    return min(known, key=lambda pair: abs(pair[1] - middle))[0]


def _measure(step: StepRow) -> float | None:
    return step.slack if step.fine else step.wait


def _most(steps: Sequence[StepRow], measure: Callable[[StepRow], float | None]) -> StepRow | None:
    known = [(step, value) for step in steps if (value := measure(step))]
    return max(known, key=lambda pair: pair[1])[0] if known else None
