"""What sums of lost time stand for, and what a page says where there was nothing to measure."""

from __future__ import annotations

import json
from html import unescape
from typing import TYPE_CHECKING, Any

import pytest

from sglang_fence.cli.report.page import page
from sglang_fence.cli.report.sources import read_facts

if TYPE_CHECKING:
    from pathlib import Path

    from sglang_fence.cli.report.facts import RunFacts


def told_of(record: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(record.read_text(encoding="utf-8"))
    return told


def facts_of(folder: Path, told: dict[str, Any]) -> RunFacts:
    path = folder / "run.json"
    path.write_text(json.dumps(told), encoding="utf-8")
    return read_facts(path)


def test_sums_that_were_extrapolated_say_so_and_from_how_many_steps(record: Path, tmp_path: Path) -> None:
    told = told_of(record)
    told["run"]["timing_every"], told["run"]["lost_from"] = 101, 3
    facts = facts_of(tmp_path, told)
    assert "estimates that stand for all steps" in facts.sums
    assert "measured on 3 of 4 coarse steps, and each of them counts 101 times" in facts.sums
    assert [one.label for one in facts.figures if one.key == "lost_us"] == ["lost time, µs, from 3 of 4 coarse steps"]
    assert facts.sums in unescape(page(facts))


def test_sums_of_all_steps_are_no_estimate(record: Path) -> None:
    assert read_facts(record).sums == (
        "Lost time is the sum over the steps on which it was measured: 4 of 4 coarse steps."
    )


def test_without_any_measurement_nothing_is_known(untimed_record: Path) -> None:
    facts = read_facts(untimed_record)
    assert facts.sums.startswith("What was lost isn't known: it was measured on 0 of 4 coarse steps")
    assert [one.value for one in facts.figures if one.key == "lost_us"] == [None]
    assert {row.lost_us for row in facts.fallbacks} == {None}


def test_a_page_without_a_fence_does_not_contradict_itself(off_record: Path) -> None:
    facts = read_facts(off_record)
    made = page(facts)
    assert "No step of this run was held back by either." in made
    assert "Device times were taken on 15 of 15 steps; no fence held any step back" in made
    assert "nothing was lost to a fence" in made
    assert "Nothing waits for it." in made
    assert "A typical step: " in made  # some are drawn, as the notes say
    for wrong in ("histograms hold those alone", "No step's times were taken", "lets go", "Slack –"):
        assert wrong not in made, wrong


@pytest.mark.parametrize(("steps", "words"), [(1, "1 of 1 coarse step."), (2, "1 of 2 coarse steps.")])
def test_one_step_is_no_steps(steps: int, words: str, record: Path, tmp_path: Path) -> None:
    told = told_of(record)
    told["run"]["fence"]["coarse"], told["run"]["lost_from"] = steps, 1
    assert facts_of(tmp_path, told).sums.endswith(words)
