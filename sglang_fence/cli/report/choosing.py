"""Which steps a page shows: a typical one, the best and the worst."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

from sglang_fence.observe.counting import many

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sglang_fence.cli.report.facts import RunFacts, StepRow

_FARTHEST = 1.0


@dataclass(frozen=True, slots=True)
class Chosen:
    """A step, and why it is shown."""

    title: str
    why: str
    step: StepRow
    drawable: bool = True


def chosen(run: RunFacts) -> list[Chosen]:
    """Return up to three steps: typical, best, worst. One that is two of them is shown once."""
    found: list[Chosen] = []
    usual = _usual(run.candidates)
    if usual is not None:
        found.append(Chosen("A typical step", _why_typical(usual, run.candidates), usual))
    best = _extreme(run, "The best step", "gave more slack", lambda step: step.slack if step.fine else None)
    worst = _extreme(run, "The worst step", "lost more to its fence", lambda step: step.lost if step.coarse else None)
    if worst is None:
        worst = _extreme(run, "The worst step", "stalled its schedule stream longer", lambda step: step.wait)
    kept: dict[tuple[bool, int], Chosen] = {}
    for one in (*found, best, worst):
        if one is None:
            continue
        before = kept.get((one.drawable, one.step.index))
        if before is not None:
            title = f"{before.title}, and {one.title[0].lower()}{one.title[1:]}"
            one = replace(one, title=title, why=f"{before.why} {one.why}")  # noqa: PLW2901 - it takes its place
        kept[one.drawable, one.step.index] = one
    return list(kept.values())


def typical(steps: Sequence[StepRow], mode: str | None = None) -> StepRow | None:
    """Return the step of a mode that is the nearest to the medians of its slack, its wait and its forward together.

    How near a step is in one of them is the share of steps that are nearer still, so that no unit and no outlier weighs
    more than another; what isn't known of it counts as the farthest. Of equals it is the one in the middle of the run.

    Args:
        steps: of one kind of fence, in the order of the run.
        mode: which mode's; None: of the most frequent one.
    """
    modes = Counter(step.mode for step in steps)
    wanted = modes.most_common(1)[0][0] if mode is None and modes else mode
    own = [step for step in steps if step.mode == wanted]
    shares = [found for found in (_distances([measure(step) for step in own]) for measure in _MEASURES) if found]
    if not shares:
        return None
    middle = (len(own) - 1) / 2
    distances = [sum(row) for row in zip(*shares, strict=True)]
    return own[min(range(len(own)), key=lambda at: (distances[at], abs(at - middle)))]


_MEASURES: tuple[Callable[[StepRow], float | None], ...] = (
    lambda step: step.slack,
    lambda step: step.wait,
    lambda step: step.forward,
)


def _distances(values: Sequence[float | None]) -> list[float] | None:
    """Return for each value which share of all is nearer to their median; None where no value is known."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    middle = median(known)
    ordered = sorted(abs(value - middle) for value in known)
    return [
        _FARTHEST if value is None else bisect_left(ordered, abs(value - middle)) / len(ordered) for value in values
    ]


def _usual(steps: Sequence[StepRow]) -> StepRow | None:
    """Fine steps come first, then coarse ones; where neither is there, the fence was off."""
    fine, coarse = [one for one in steps if one.fine], [one for one in steps if one.coarse]
    return typical(fine or coarse or steps)


def _why_typical(usual: StepRow, candidates: Sequence[StepRow]) -> str:
    alike = sum((one.mode, one.fence) == (usual.mode, usual.fence) for one in candidates)
    told = {"slack": usual.slack, "wait": usual.wait, "forward": usual.forward}
    names = [name for name, value in told.items() if value is not None]
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    which = "the only one" if alike == 1 else f"one of {alike:,}"
    nearest = "" if alike == 1 else f", and the nearest to their medians in {listed}"
    return f"Of the {usual.fence} {usual.mode} steps that can be drawn it is {which}{nearest}."


def _extreme(run: RunFacts, title: str, more: str, measure: Callable[[StepRow], float | None]) -> Chosen | None:
    """Return the step with the most of something: of those that can be drawn, and what was more without a picture."""
    first = _most(run.candidates, measure)
    of_all = _most(run.steps, measure)
    if first is None or (of_all is not None and of_all[1] > first[1]):
        if of_all is None:
            return None
        if first is None:
            return Chosen(title, f"Of all timed steps none {more}. It can't be drawn.", of_all[0], drawable=False)
        drawable = f"Of the {many(len(run.candidates), 'step')} that can be drawn none {more}."
        beyond = f"Of all timed ones {of_all[0].name} did, with {of_all[1]:,.1f} µs; it can't be drawn."
        return Chosen(title, f"{drawable} {beyond}", first[0])
    return Chosen(title, f"Of all timed steps none {more}.", first[0])


def _most(steps: Sequence[StepRow], measure: Callable[[StepRow], float | None]) -> tuple[StepRow, float] | None:
    known = [(step, value) for step in steps if (value := measure(step))]
    return max(known, key=lambda pair: pair[1]) if known else None
