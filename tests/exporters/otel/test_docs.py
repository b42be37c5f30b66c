"""The page about tracing lists what the catalogue has, in the catalogue's words."""

from __future__ import annotations

import re
from pathlib import Path

from sglang_fence.catalogue import ATTRIBUTES, SPANS


def test_the_docs_list_every_span_and_attribute_as_the_catalogue_explains_it() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "tracing.md").read_text(encoding="utf-8")
    assert {row.name for row in SPANS} | {row.name for row in ATTRIBUTES} == set(
        re.findall(r"^\| `([a-z_.]+)` \|", page, re.MULTILINE)
    )
    for row in SPANS:
        assert f"| `{row.name}` | {row.track.value} | {row.help} |\n" in page
    for attribute in ATTRIBUTES:
        values = "" if attribute.values is None else ": " + ", ".join(f"`{value}`" for value in attribute.values)
        assert re.search(
            rf"^\| `{attribute.name}` \| .* \| {re.escape(attribute.help + values)} \|$", page, re.MULTILINE
        ), attribute.name
