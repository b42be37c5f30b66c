"""From facts to HTML and SVG, through templates that escape what they are given.

The page asks for nothing: its style and pictures are in it, it has no script, and its own policy forbids the network.
"""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

import sglang_fence
from sglang_fence.cli.report.choosing import chosen, typical
from sglang_fence.cli.report.comparing import cautions, compare, why_none
from sglang_fence.cli.report.drawing import picture
from sglang_fence.cli.report.facts import TRACKS
from sglang_fence.cli.report.histogram import histogram
from sglang_fence.cli.report.naming import colors

if TYPE_CHECKING:
    from sglang_fence.cli.report.comparing import Comparison, Half
    from sglang_fence.cli.report.drawing import Picture
    from sglang_fence.cli.report.facts import RunFacts, StepRow, Timeline
    from sglang_fence.cli.report.histogram import Histogram

SVG_WIDTH = 960

_POLICY = "default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"


def page(run: RunFacts, other: RunFacts | None = None) -> str:
    """Return the page of a run, with another one beside it where one is given."""
    picks = chosen(run)
    shown = [(pick, _picture(run, pick.step) if pick.drawable else None) for pick in picks]
    comparison = compare(run, other)
    pair = [] if comparison is None else _pair(comparison)
    drawn = [drawn.timeline for _, drawn in (*shown, *pair) if drawn is not None]
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
            comparison=comparison,
            why_none=why_none(other),
            cautions=cautions(run, other),
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
    picks = [pick for pick in chosen(run) if pick.drawable]
    numbered = (one for one in run.candidates if one.number == step)
    found = picks[0].step if step is None and picks else next(numbered, None)
    if found is None:
        return None
    drawn = _picture(run, found)
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


def _picture(run: RunFacts, step: StepRow) -> Picture:
    return picture(run.draw([step])[0])


def _histograms(run: RunFacts) -> list[Histogram]:
    fine, coarse = [step for step in run.steps if step.fine], [step for step in run.steps if step.coarse]
    made = (
        histogram("slack_fine", "Slack of fine steps", [step.slack for step in fine if step.slack is not None]),
        histogram("wait_fine", "Wait at fine fences", [step.wait for step in fine if step.wait is not None]),
        histogram("wait_coarse", "Wait at coarse fences", [step.wait for step in coarse if step.wait is not None]),
    )
    return [one for one in made if one is not None]


def _pair(comparison: Comparison) -> list[tuple[str, Picture]]:
    """Return a typical step of each half, on one scale; nothing where one of them has none that can be drawn."""
    drawn: list[tuple[Half, StepRow, Timeline]] = []
    for half in comparison.halves:
        step = typical([one for one in half.run.candidates if one.fence == half.fence], comparison.mode)
        if step is None:
            return []
        drawn.append((half, step, half.run.draw([step])[0]))
    length = max(timeline.length for *_, timeline in drawn)
    first, second = comparison.halves
    return [
        (
            f"{half.fence}, {step.mode}, {step.name}" + ("" if first.run is second.run else f" of {half.run.title}"),
            picture(timeline, length),
        )
        for half, step, timeline in drawn
    ]
