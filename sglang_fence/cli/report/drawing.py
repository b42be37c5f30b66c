"""A timeline as geometry: lanes of rows of bars. Across, all is in percent of the width, so that text keeps its size.

A page as narrow as a telephone's then shows the same picture with narrower bars, and nothing has to be scrolled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sglang_fence.cli.report.facts import FORWARD, SCHEDULE, TRACKS, Block, Timeline
from sglang_fence.cli.report.scales import ticks

if TYPE_CHECKING:
    from collections.abc import Sequence

ROW, GAP, LANE_GAP, TITLE, AXIS, TOP = 22, 2, 10, 17, 22, 18
"""Heights in CSS pixels: of a row, between two, between lanes, of a lane's title, of the axis, and of the top."""

NEAR = 3.0
"""Percent within which two letters would collide on a narrow page."""

THINNEST = 0.15
"""Percent that a bar takes at the least, so that it is seen."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar, to be drawn."""

    block: Block
    x: float
    width: float
    y: int

    @property
    def title(self) -> str:
        """What is shown when it is pointed at."""
        block = self.block
        said = f"{block.name}: {block.start:,.1f} to {block.end:,.1f} µs ({block.end - block.start:,.1f} µs)"
        return f"{said}, {block.detail}" if block.detail else said


@dataclass(frozen=True, slots=True)
class Lane:
    """The bars of one track."""

    title: str
    y: int
    height: int
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment, as a line across all lanes."""

    letter: str
    label: str
    x: float
    at: float
    anchor: str
    """On which side of the line its letter stands, in the words of SVG, so that no two letters collide."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """The slack or the wait, as a bracket below the lanes."""

    name: str
    label: str
    x: float
    width: float
    y: int


@dataclass(frozen=True, slots=True)
class Tick:
    """A place on the axis."""

    x: float
    label: str


@dataclass(frozen=True, slots=True)
class Picture:
    """A whole timeline, to be drawn."""

    timeline: Timeline
    height: int
    lanes: tuple[Lane, ...]
    marks: tuple[Mark, ...]
    stretches: tuple[Stretch, ...]
    ticks: tuple[Tick, ...]

    @property
    def axis_y(self) -> int:
        """Where the axis is."""
        return self.height - AXIS


def picture(timeline: Timeline, length: float | None = None) -> Picture:
    """Lay a timeline out.

    Args:
        timeline: what is drawn.
        length: µs that the whole width stands for, so that two pictures have one scale; None: the timeline's own.
    """
    whole = max(length or timeline.length, 1e-3)

    def percent(us: float) -> float:
        return round(100 * us / whole, 4)

    y = TOP
    lanes: list[Lane] = []
    for track, title in TRACKS.items():
        rows = stacked([block for block in timeline.blocks if block.track == track])
        if not rows and track not in {SCHEDULE, FORWARD}:
            continue
        bars = [
            Bar(block, percent(block.start), max(THINNEST, percent(block.end - block.start)), y + TITLE + at)
            for row, blocks in enumerate(rows)
            for block in blocks
            for at in (row * (ROW + GAP),)
        ]
        height = TITLE + max(1, len(rows)) * (ROW + GAP)
        lanes.append(Lane(title, y, height, tuple(bars)))
        y += height + LANE_GAP
    stretches: list[Stretch] = []
    for stretch in _stretches(timeline):
        name, label, start, end = stretch
        stretches.append(Stretch(name, label, percent(start), percent(end - start), y))
        y += ROW + GAP
    return Picture(
        timeline,
        y + AXIS,
        tuple(lanes),
        tuple(_marks(timeline, whole)),
        tuple(stretches),
        tuple(Tick(percent(at), label) for at, label in ticks(whole)),
    )


def stacked(blocks: Sequence[Block]) -> list[list[Block]]:
    """Put blocks into rows in which none covers another; what lies inside another comes below it."""
    rows: list[list[Block]] = []
    for block in sorted(blocks, key=lambda block: (block.start, -block.end)):
        for row in rows:
            if row[-1].end <= block.start:
                row.append(block)
                break
        else:
            rows.append([block])
    return rows


def _stretches(timeline: Timeline) -> list[tuple[str, str, float, float]]:
    found: list[tuple[str, str, float, float]] = []
    step, waited, reads, end = timeline.step, timeline.waited_from, timeline.reads_end, timeline.forward_end
    if step.wait and waited is not None and reads is not None and reads > waited:
        found.append(("wait", f"wait {step.wait:,.1f} µs", waited, reads))
    if step.slack and reads is not None and end is not None and end > reads:
        latest = timeline.reads_end_latest
        least = "" if latest is None or latest <= reads else f", at least {max(0.0, end - latest):,.1f}"
        found.append(("slack", f"slack {step.slack:,.1f} µs{least}", reads, end))
    return found


def _marks(timeline: Timeline, whole: float) -> list[Mark]:
    coarse = timeline.step.coarse
    moments = [
        ("A", "the schedule stream comes to the wait", timeline.waited_from),
        ("R", "the shared reads end, and the fence lets go", None if coarse else timeline.reads_end),
        ("F", "the forward ends" + (", and the fence lets go" if coarse else ""), timeline.forward_end),
    ]
    known = sorted((at, letter, label) for letter, label, at in moments if at is not None)
    places = [100 * at / whole for at, *_ in known]
    marks: list[Mark] = []
    for index, (at, letter, label) in enumerate(known):
        place = places[index]
        crowded_behind = index + 1 < len(places) and places[index + 1] - place < NEAR
        crowded_before = index > 0 and place - places[index - 1] < NEAR
        to_the_left = place > 100 - NEAR or (crowded_behind and place >= NEAR)
        anchor = "end" if to_the_left else "start" if place < NEAR or crowded_before else "middle"
        marks.append(Mark(letter, label, round(place, 4), at, anchor))
    return marks
