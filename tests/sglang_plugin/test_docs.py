"""The page about the plugin names everything that there is."""

from __future__ import annotations

import re
from pathlib import Path

from sglang_fence.catalogue import METRICS
from sglang_fence.contract import REASONS
from sglang_fence.environ import SWITCHES as SGLANGS
from sglang_fence.sglang_plugin.switches import SWITCHES

PAGE = (Path(__file__).parents[2] / "docs/sglang.md").read_text(encoding="utf-8")
ROWS = {line.split("|")[1].strip(): line for line in PAGE.splitlines() if line.startswith("| `")}


def test_each_switch_has_its_row_with_its_default_and_what_it_does() -> None:
    for row in SWITCHES:
        _, _, default, about, _ = ROWS[f"`{row.name}`"].split("|")
        assert default.strip() == row.default
        assert about.replace("`", "").strip() == row.about
    assert all(f"`{switch.name}`" in ROWS for switch in SGLANGS)


def test_each_reason_is_told_and_whether_it_is_expected() -> None:
    told = {
        reason: line.split("|")[2].strip() for cell, line in ROWS.items() for reason in re.findall(r"`(\w+)`", cell)
    }
    assert {reason.value: told.get(reason.value) for reason in REASONS} == {
        reason.value: "yes" if info.expected else "no" for reason, info in REASONS.items()
    }


def test_each_metric_is_named_and_no_other() -> None:
    named = set(re.findall(r"`(sglang_fence_\w+)`", PAGE)) - {"sglang_fence"}
    assert named == {metric.name for metric in METRICS}
