"""The names of ranges: those that the runtime uses are the catalogue's, and the documentation lists them all."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from sglang_fence.catalogue import NVTX_DOMAIN, NVTX_RANGES
from sglang_fence.catalogue.ranges import NVTX_COUNTERS, UNLISTED_NAME

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "nvtx.md"
LISTED = {row.name for row in NVTX_RANGES}
"""The marker's planting, until the range around the whole preparation, ``in_graph_metadata``, takes its place."""


def used_ranges() -> dict[str, str]:
    """Return the names that the runtime gives to a probe's ``range`` and ``around``, and where."""
    found: dict[str, str] = {}
    for path in sorted((ROOT / "sglang_fence").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Attribute(attr="range" | "around") | ast.Name(id="around"),
                    args=[ast.Constant(value=str(name)), *_],
                ):
                    found[name] = path.relative_to(ROOT).as_posix()
                case _:
                    pass
    return found


def test_the_runtime_names_only_ranges_of_the_catalogue() -> None:
    used = used_ranges()
    assert {"replay", "publish"} <= set(used)
    assert {name: path for name, path in used.items() if name not in LISTED} == {}


def test_the_page_lists_every_range_and_counter_as_the_catalogue_does() -> None:
    text = PAGE.read_text(encoding="utf-8")
    ranges = re.findall(r"^\| `([\w.]+)` \| (\w+) \| `#(\w{6})` \| (.+) \|$", text, re.MULTILINE)
    assert ranges == [(row.name, row.category.value, f"{row.color & 0xFFFFFF:06X}", row.help) for row in NVTX_RANGES]
    counters = re.findall(r"^\| `(\w+)` \| (\w+) \| ([^|`]+) \|$", text, re.MULTILINE)
    assert counters == [(row.name, row.unit, row.help) for row in NVTX_COUNTERS]


def test_the_page_names_the_domain_and_the_name_that_other_ranges_get() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert f"`{NVTX_DOMAIN}`" in text
    assert f"`{UNLISTED_NAME}`" in text
