"""The plot of ``bench fence``: what the fine fence gives back, by decode length, a line for each preparation time.

SVG, written here: four lines, two axes and a legend aren't worth a plotting library. It follows the reader's theme.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sglang_fence.bench.fence_result import Cell, FenceResult

_WIDTH, _HEIGHT = 760, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 24, 64, 56
_COLOURS = ("#1f77b4", "#d95f02", "#2a9d5c", "#a44fb8", "#b8860b", "#c0392b", "#16839a", "#7f6a52")
"""One a line, in turn; each stands out from white and from black."""
_STYLE = """\
text { font: 13px system-ui, sans-serif; fill: #24292f } .title { font-size: 15px; font-weight: 600 }
.page { fill: #ffffff } .grid { stroke: #d0d7de; stroke-width: 1 } .line { fill: none; stroke-width: 2 }
.bound { fill: none; stroke-width: 1.5; stroke-dasharray: 2 4 }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .page { fill: #0d1117 } .grid { stroke: #30363d } }"""


@dataclass(frozen=True, slots=True)
class Scale:
    """From a decode length in µs (logarithmic) and a gain in per cent to a place on the page."""

    shortest: float
    longest: float
    most: float

    def x(self, decode_us: float) -> float:
        """Return the distance from the left."""
        if self.longest <= self.shortest:
            return (_LEFT + _WIDTH - _RIGHT) / 2
        share = math.log(decode_us / self.shortest) / math.log(self.longest / self.shortest)
        return _LEFT + share * (_WIDTH - _RIGHT - _LEFT)

    def y(self, gain: float) -> float:
        """Return the distance from the top; losses lie on the axis."""
        return _HEIGHT - _BOTTOM - max(0.0, gain) / self.most * (_HEIGHT - _BOTTOM - _TOP)


def gain(cell: Cell) -> float:
    """Return by how many per cent the fine fence is above the coarse one: the median over rounds."""
    return 100 * (cell.against("fine IN", "coarse").ratio - 1)


def possible_gain(cell: Cell) -> float:
    """Return the same of the ideal fence."""
    return 100 * (cell.ideal_steps_per_s / cell.variants["coarse"].median - 1)


def svg(result: FenceResult) -> str:
    """Draw the grid of ``result``."""
    rows = result.grid(result.schedule_us)
    cells = [cell for row in rows.values() for cell in row.values()]
    lengths = sorted({cell.shape.forward_us for cell in cells})
    highest = max(max(gain(cell), possible_gain(cell)) for cell in cells)
    step = _tick(highest)
    scale = Scale(lengths[0], lengths[-1], step * max(1, math.ceil(highest / step)))
    machine = result.machine.get("gpu", result.machine["device"])
    title = f"What the fine fence gives back: steps/s over the coarse fence ({machine})"
    return "\n".join([*_frame(title, scale, lengths, step), *_lines(rows, scale), "</svg>", ""])


def _frame(title: str, scale: Scale, lengths: Sequence[float], step: float) -> Iterator[str]:
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(title)}">'
    )
    yield f"<style>{_STYLE}</style>"
    yield f'<rect class="page" width="{_WIDTH}" height="{_HEIGHT}"/>'
    yield f'<text class="title" x="{_LEFT}" y="24">{escape(title)}</text>'
    for number in range(round(scale.most / step) + 1):
        y = scale.y(number * step)
        yield f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">+{number * step:g} %</text>'
    for length in lengths:
        x = scale.x(length)
        yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{_HEIGHT - _BOTTOM}" y2="{_HEIGHT - _BOTTOM + 5}"/>'
        yield f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 20}" text-anchor="middle">{length / 1e3:g}</text>'
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    yield f'<text x="{middle:.1f}" y="{_HEIGHT - 12}" text-anchor="middle">decode step on the forward stream, ms</text>'


def _lines(rows: Mapping[float, Mapping[float, Cell]], scale: Scale) -> Iterator[str]:
    place = _LEFT
    for number, (prepare, row) in enumerate(rows.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        for kind, values in (("line", gain), ("bound", possible_gain)):
            points = " ".join(f"{scale.x(length):.1f},{scale.y(values(cell)):.1f}" for length, cell in row.items())
            yield f'<polyline class="{kind}" stroke="{colour}" points="{points}"/>'
        for length, cell in row.items():
            said = f"decode {length / 1e3:g} ms, host {prepare / 1e3:g} ms: {gain(cell):+.1f} %"
            circle = f'<circle cx="{scale.x(length):.1f}" cy="{scale.y(gain(cell)):.1f}" r="3.5" fill="{colour}">'
            yield f"{circle}<title>{said}</title></circle>"
        yield f'<rect x="{place}" y="40" width="14" height="4" fill="{colour}"/>'
        yield f'<text x="{place + 20}" y="47">host {prepare / 1e3:g} ms</text>'
        place += 110
    yield f'<text x="{place}" y="47">dotted: ideal fence</text>'


def _tick(highest: float) -> float:
    """Return a distance of 1, 2 or 5 times a power of ten, such that about five fit."""
    wanted = max(highest, 1.0) / 5
    power: float = 10.0 ** math.floor(math.log10(wanted))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= wanted)
