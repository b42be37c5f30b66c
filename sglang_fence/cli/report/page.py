"""From facts to HTML and SVG, through templates that escape what they are given.

The page asks for nothing: its style and pictures are in it, it has no script, and its own policy forbids the network.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

import sglang_fence
from sglang_fence.cli.report.choosing import chosen, typical
from sglang_fence.cli.report.drawing import picture
from sglang_fence.cli.report.facts import TRACKS
from sglang_fence.cli.report.histogram import histogram
from sglang_fence.cli.report.naming import colors
from sglang_fence.observe.summary import percentile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sglang_fence.cli.report.drawing import Picture
    from sglang_fence.cli.report.facts import RunFacts, StepRow
    from sglang_fence.cli.report.histogram import Histogram

SVG_WIDTH = 960

_POLICY = "default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"


@dataclass(frozen=True, slots=True)
class Side:
    """A column of the comparison: the steps of one run behind one kind of fence."""

    key: str
    title: str
    steps: int
    slack: tuple[float | None, float | None]
    """p50 and p99."""

    wait: tuple[float | None, float | None]
    forward: tuple[float | None, float | None]


def page(run: RunFacts, other: RunFacts | None = None) -> str:
    """Return the page of a run, with another one beside it where one is given."""
    picks = chosen(run.candidates)
    shown = list(zip(picks, _pictures(run, [pick.step for pick in picks]), strict=True))
    pair = _pair(run, other)
    drawn = [drawn.timeline for _, drawn in (*shown, *pair)]
    used = {block.category for timeline in drawn for block in timeline.blocks}
    style = _environment().get_template("style.css.j2").render(colors=colors())
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            run=run,
            other=other,
            style=Markup(style),  # noqa: S704 - our own template, given our own colours
            policy=_POLICY.format(digest=digest),
            histograms=_histograms(run),
            shown=shown,
            sides=_sides(run, other),
            pair=pair,
            used=[category for category in colors() if category in used],
            tracks=TRACKS,
            version=sglang_fence.__version__,
        )
    )


def svg(run: RunFacts, step: int | None = None) -> tuple[str, StepRow] | None:
    """Return the timeline of one step as a file of its own, and the step; None where there is no such step.

    Args:
        run: what is drawn.
        step: the step's number; None: the typical one.
    """
    picks = chosen(run.candidates)
    numbered = (one for one in run.candidates if one.number == step)
    found = picks[0].step if step is None and picks else next(numbered, None)
    if found is None:
        return None
    drawn = _pictures(run, [found])[0]
    style = _environment().get_template("style.css.j2").render(colors=colors())
    template = _environment().get_template("timeline.svg.j2")
    return template.render(drawn=drawn, width=SVG_WIDTH, style=Markup(style)) + "\n", found  # noqa: S704 - as above


def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("sglang_fence.cli.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _pictures(run: RunFacts, steps: Sequence[StepRow]) -> list[Picture]:
    return [picture(timeline) for timeline in run.draw(steps)]


def _histograms(run: RunFacts) -> list[Histogram]:
    fine, coarse = [step for step in run.steps if step.fine], [step for step in run.steps if step.coarse]
    made = (
        histogram("slack_fine", "Slack of fine steps", [step.slack for step in fine if step.slack is not None]),
        histogram("wait_fine", "Wait at fine fences", [step.wait for step in fine if step.wait is not None]),
        histogram("wait_coarse", "Wait at coarse fences", [step.wait for step in coarse if step.wait is not None]),
    )
    return [one for one in made if one is not None]


def _sides(run: RunFacts, other: RunFacts | None) -> list[Side]:
    sides: list[Side] = []
    for which, one in (("run", run), ("other", other)):
        if one is None:
            continue
        where = f", {one.title}" if other is not None else ""
        for kind in ("fine", "coarse"):
            steps = [step for step in one.steps if step.fence == kind]
            if steps:
                sides.append(
                    Side(
                        f"{which}.{kind}",
                        f"{kind}{where}",
                        len(steps),
                        _ranks([step.slack for step in steps]),
                        _ranks([step.wait for step in steps]),
                        _ranks([step.forward for step in steps]),
                    ),
                )
    return sides


def _ranks(values: Sequence[float | None]) -> tuple[float | None, float | None]:
    known = [value for value in values if value is not None]
    return percentile(known, 0.5), percentile(known, 0.99)


def _pair(run: RunFacts, other: RunFacts | None) -> list[tuple[str, Picture]]:
    """Return a typical fine and a typical coarse step, on one scale; of two runs where two are given."""
    fine = typical([step for step in run.candidates if step.fine])
    if other is None:
        mode = None if fine is None else fine.mode
        coarse = typical([step for step in run.candidates if step.coarse], mode)
        sides = [(run, fine), (run, coarse)]
    else:
        first = fine or typical(run.candidates)
        mode = None if first is None else first.mode
        sides = [(run, first), (other, typical(other.candidates, mode))]
    drawn = [(source, step, source.draw([step])[0]) for source, step in sides if step is not None]
    if len(drawn) < len(sides):
        return []
    length = max(timeline.length for *_, timeline in drawn)
    return [
        (
            f"{step.fence}, {step.mode}, {step.name}" + (f" of {source.title}" if other is not None else ""),
            picture(timeline, length),
        )
        for source, step, timeline in drawn
    ]
