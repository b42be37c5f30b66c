"""The page on captures: its picture is drawn from the committed capture, and its colours are the catalogue's."""

from __future__ import annotations

import re
from pathlib import Path

from sglang_fence.catalogue.ranges import COLORS, NVTX_RANGES
from sglang_fence.cli.report_command import report
from tests.analyze.expectations import unpack

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "nsight.md").read_text(encoding="utf-8")


def test_the_picture_is_what_the_command_beside_it_draws(tmp_path: Path) -> None:
    command = re.search(r"report full\.sqlite --step (\d+) --timeline-svg docs/(\S+)", PAGE)
    assert command is not None
    assert f"]({command[2]})" in PAGE
    drawn = tmp_path / "step.svg"
    report(unpack("full", tmp_path / "full.sqlite"), timeline_svg=drawn, step=int(command[1]))
    assert drawn.read_text(encoding="utf-8") == (DOCS / command[2]).read_text(encoding="utf-8")


def test_each_colour_is_told_with_its_ranges() -> None:
    told = re.findall(r"^\| `#([0-9A-F]{6})` \| (\w+) \| (.*) \|$", PAGE, re.MULTILINE)
    assert told == [
        (
            f"{argb & 0xFFFFFF:06X}",
            category.value,
            ", ".join(f"`{found.name}`" for found in NVTX_RANGES if found.category is category),
        )
        for category, argb in COLORS.items()
    ]
