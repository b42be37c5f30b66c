"""Fine beside coarse, within one mode; and what speaks against comparing two runs at all."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from sglang_fence.cli.report.facts import SETTINGS
from sglang_fence.contract import FenceKind
from sglang_fence.observe.summary import percentile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sglang_fence.cli.report.facts import RunFacts, StepRow

_OPPOSITE: set[str] = {FenceKind.FINE.value, FenceKind.COARSE.value}


@dataclass(frozen=True, slots=True)
class Side:
    """A column of the comparison: the steps of one run, one mode and one kind of fence."""

    key: str
    title: str
    steps: int
    slack: tuple[float | None, float | None]
    """p50 and p99."""

    wait: tuple[float | None, float | None]
    forward: tuple[float | None, float | None]


@dataclass(frozen=True, slots=True)
class Half:
    """The steps that one of two pictures is chosen of."""

    run: RunFacts
    fence: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two kinds of steps that can be compared."""

    mode: str
    halves: tuple[Half, Half]
    sides: tuple[Side, ...]
    """All kinds of fence that have steps of the mode, those of the first run first."""


def compare(run: RunFacts, other: RunFacts | None = None) -> Comparison | None:
    """Choose a mode, and what is compared in it; None where no mode has both.

    Of one run, fine steps are compared with coarse ones. Of two, those of one with those of the other: fine with coarse
    where that can be had, else whatever the fences were. Of several modes it is the one with the most steps of both.
    """
    first, second = _counted(run), _counted(run if other is None else other)
    found: list[tuple[tuple[bool, bool, int], str, str, str]] = []
    for (mode, fence), (theirs, against) in product(first, second):
        apart = fence != against and fence in _OPPOSITE and against in _OPPOSITE
        if mode != theirs or (other is None and not (apart and fence == FenceKind.FINE)):
            continue
        both = min(first[mode, fence], second[theirs, against])
        found.append(((apart, fence != against, both), mode, fence, against))
    if not found:
        return None
    _, mode, fence, against = max(found, key=lambda one: one[0])
    halves = (Half(run, fence), Half(run if other is None else other, against))
    return Comparison(mode, halves, tuple(_sides(run, other, mode)))


def why_none(other: RunFacts | None) -> str:
    """Say why there is no comparison."""
    if other is None:
        return (
            "No mode has both fine and coarse steps whose times were taken, so none can be compared. Give a second run "
            "with --against, such as one with --fence coarse."
        )
    return "There is no mode of which both runs have steps whose times were taken, so none can be compared."


def cautions(run: RunFacts, other: RunFacts | None) -> list[str]:
    """Say what speaks against comparing the two, in sentences; nothing where nothing is known to."""
    if other is None:
        return []
    said = [
        f"The {name} isn't the same: {run.title} has {run.setting[key]}, {other.title} has {other.setting[key]}."
        for key, name in SETTINGS.items()
        if key in run.setting and key in other.setting and run.setting[key] != other.setting[key]
    ]
    if (
        run.setting.get("clock") != other.setting.get("clock")
        and {"clock"} <= run.setting.keys() & other.setting.keys()
    ):
        said.append("A microsecond of virtual time is what a cost table says, and none of wall time.")
    if run.kind != other.kind:
        said.append(
            f"{run.title} is {run.kind}, {other.title} {other.kind}: a profiler slows the host's calls, and each takes "
            "its moments in its own way.",
        )
    silent = [one.title for one in (run, other) if not one.setting]
    if silent:
        said.append(
            f"Whether both ran one model on one kind of device isn't known: {' and '.join(silent)} doesn't say it."
            if len(silent) == 1
            else "Whether both ran one model on one kind of device isn't known: a capture doesn't say it.",
        )
    return [*said, "Differences below may come from that, and not from the fence."] if said else []


def _counted(run: RunFacts) -> Counter[tuple[str, str]]:
    return Counter((step.mode, step.fence) for step in run.steps)


def _sides(run: RunFacts, other: RunFacts | None, mode: str) -> list[Side]:
    order = [kind.value for kind in FenceKind]
    sides: list[Side] = []
    for which, one in (("run", run), ("other", other)):
        if one is None:
            continue
        where = f", {one.title}" if other is not None else ""
        kinds = {step.fence for step in one.steps if step.mode == mode}
        ordered = sorted(kinds, key=lambda kind: order.index(kind) if kind in order else len(order))
        sides += [_side(f"{which}.{kind}", f"{kind}{where}", _of(one.steps, mode, kind)) for kind in ordered]
    return sides


def _of(steps: Sequence[StepRow], mode: str, fence: str) -> list[StepRow]:
    return [step for step in steps if (step.mode, step.fence) == (mode, fence)]


def _side(key: str, title: str, steps: Sequence[StepRow]) -> Side:
    return Side(
        key,
        title,
        len(steps),
        _ranks([step.slack for step in steps]),
        _ranks([step.wait for step in steps]),
        _ranks([step.forward for step in steps]),
    )


def _ranks(values: Sequence[float | None]) -> tuple[float | None, float | None]:
    known = [value for value in values if value is not None]
    return percentile(known, 0.5), percentile(known, 0.99)
