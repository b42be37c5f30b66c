"""The plot shows what the figures say, at the right places, as SVG that a browser takes."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from sglang_fence.bench import plot
from sglang_fence.bench.blocks import Measured

if TYPE_CHECKING:
    from sglang_fence.bench.fence_result import Cell, FenceResult

_NS = "{http://www.w3.org/2000/svg}"


def drawn(result: FenceResult) -> ET.Element:
    return ET.fromstring(plot.svg(result))  # noqa: S314 - our own drawing


def test_each_cell_of_the_grid_has_a_point_that_says_its_gain(fence_result: FenceResult) -> None:
    said = [title.text for title in drawn(fence_result).iter(f"{_NS}title")]
    assert said == [
        "decode 0.1 ms, host 0 ms: +40.0 %",
        "decode 0.25 ms, host 0 ms: +16.0 %",
        "decode 1 ms, host 0 ms: +4.0 %",
        "decode 0.1 ms, host 0.3 ms: +0.0 %",
        "decode 0.25 ms, host 0.3 ms: +0.0 %",
        "decode 1 ms, host 0.3 ms: +4.0 %",
    ]


def test_points_lie_where_the_axes_say(fence_result: FenceResult) -> None:
    root = drawn(fence_result)
    circles = [(float(one.attrib["cx"]), float(one.attrib["cy"])) for one in root.iter(f"{_NS}circle")]
    axis = {
        label.text: float(label.attrib["y"]) - 4
        for label in root.iter(f"{_NS}text")
        if (label.text or "").endswith("%")
    }
    assert circles[0][1] == pytest.approx(axis["+40 %"], abs=0.11)
    assert circles[3][1] == pytest.approx(axis["+0 %"], abs=0.11)
    share = (axis["+0 %"] - circles[1][1]) / (axis["+0 %"] - axis["+40 %"])
    assert share == pytest.approx(16 / 40, abs=0.002)
    lengths = {label.text: float(label.attrib["x"]) for label in root.iter(f"{_NS}text") if "x" in label.attrib}
    assert [x for x, _ in circles[:3]] == [lengths["0.1"], lengths["0.25"], lengths["1"]]
    middle = (circles[1][0] - circles[0][0]) / (circles[2][0] - circles[0][0])
    assert middle == pytest.approx(0.398, abs=0.001)  # the logarithm of 2.5, to the base of 10


def test_a_line_and_a_bound_for_each_preparation_time(fence_result: FenceResult) -> None:
    kinds = [one.attrib["class"] for one in drawn(fence_result).iter(f"{_NS}polyline")]
    assert kinds == ["line", "bound"] * 2


def test_a_fence_that_costs_something_lies_below_its_bound(fence_result: FenceResult) -> None:
    def costly(cell: Cell) -> Cell:
        fine, off = cell.variants["fine IN"], cell.variants["off"]
        slower = Measured.of([0.9 * value for value in fine.values], off.values)
        return dataclasses.replace(cell, variants={**cell.variants, "fine IN": slower})

    result = dataclasses.replace(fence_result, cells=tuple(map(costly, fence_result.cells)))
    line, bound, *_ = drawn(result).iter(f"{_NS}polyline")
    assert next(drawn(result).iter(f"{_NS}title")).text == "decode 0.1 ms, host 0 ms: +26.0 %"
    heights = [[float(point.split(",")[1]) for point in one.attrib["points"].split()] for one in (line, bound)]
    assert all(reached > possible for reached, possible in zip(*heights, strict=True))  # y grows downwards


def test_one_decode_length_can_be_drawn_too(fence_result: FenceResult) -> None:
    cells = tuple(cell for cell in fence_result.cells if cell.shape.forward_us == 250 and cell.shape.schedule_us == 40)
    (first, second) = drawn(dataclasses.replace(fence_result, cells=cells)).iter(f"{_NS}circle")
    assert first.attrib["cx"] == second.attrib["cx"]


def test_names_of_machines_are_escaped(fence_result: FenceResult) -> None:
    odd = dataclasses.replace(fence_result, machine={**fence_result.machine, "gpu": 'A "<B> & C'})
    assert 'A "<B> & C' in drawn(odd).attrib["aria-label"]


def test_nothing_is_drawn_outside_the_page(fence_result: FenceResult) -> None:
    text = plot.svg(fence_result)
    points = re.findall(r"([\d.-]+),([\d.-]+)", " ".join(re.findall(r'points="([^"]+)"', text)))
    assert points
    assert all(0 <= float(x) <= 760 and 0 <= float(y) <= 420 for x, y in points)
