"""Fine beside coarse, within one mode, and what speaks against a comparison."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from sglang_fence.cli.report.comparing import cautions, compare
from sglang_fence.cli.report.page import page
from sglang_fence.cli.report.sources import read_facts
from sglang_fence.cli.report_command import report
from tests.cli.report.rows import row, run_of

if TYPE_CHECKING:
    from pathlib import Path

    from sglang_fence.cli.report.comparing import Comparison
    from sglang_fence.cli.report.facts import RunFacts, StepRow

SETTING = {"device": "cuda", "gpu": "H200", "clock": "wall", "model": "a", "dtype": "bfloat16"}


def steps_of(mode: str, fine: int, coarse: int, wait: float = 1.0) -> list[StepRow]:
    return [row(at, mode=mode, fine=at < fine, slack=2.0, wait=wait) for at in range(fine + coarse)]


def halves(found: Comparison | None) -> tuple[str, str, str]:
    assert found is not None
    first, second = found.halves
    return found.mode, first.fence, second.fence


def test_fine_and_coarse_are_of_one_mode_the_one_with_the_most_of_both() -> None:
    run = run_of([*steps_of("decode", 100, 1), *steps_of("extend", 0, 90), *steps_of("target_verify", 5, 4, 7.0)])
    found = compare(run)
    assert halves(found) == ("target_verify", "fine", "coarse")
    assert found is not None
    assert [(side.key, side.steps, side.wait) for side in found.sides] == [
        ("run.fine", 5, (7.0, 7.0)),
        ("run.coarse", 4, (7.0, 7.0)),
    ]


def test_where_no_mode_has_both_there_is_nothing_to_compare_and_that_is_said() -> None:
    run = run_of([*steps_of("decode", 9, 0), *steps_of("extend", 0, 9)])
    assert compare(run) is None
    made = page(run)
    assert "No mode has both fine and coarse steps" in made
    assert "side by side" not in made


def test_of_two_runs_fine_steps_of_one_are_compared_with_coarse_ones_of_the_other() -> None:
    fine = run_of([*steps_of("decode", 9, 0), *steps_of("extend", 0, 50)], title="fine.json")
    coarse = run_of([*steps_of("extend", 0, 50), *steps_of("decode", 0, 8)], title="coarse.json")
    assert halves(compare(fine, coarse)) == ("decode", "fine", "coarse")
    assert halves(compare(coarse, fine)) == ("decode", "coarse", "fine")
    assert halves(compare(fine, fine)) == ("extend", "coarse", "coarse")


def test_two_runs_without_a_mode_in_common_cant_be_compared() -> None:
    one, other = run_of(steps_of("decode", 9, 0)), run_of(steps_of("extend", 0, 9))
    assert compare(one, other) is None
    assert "no mode of which both runs have steps" in page(one, other)


def test_the_pictures_are_of_the_mode_that_is_compared() -> None:
    run = run_of([*steps_of("decode", 9, 3), *steps_of("extend", 0, 50)])
    made = page(run)
    assert "<strong>coarse, decode, step " in made
    assert "<strong>coarse, extend" not in made


def test_a_half_without_a_picture_is_said() -> None:
    steps = steps_of("decode", 9, 3)
    assert "There are not both kinds of decode step to be drawn." in page(run_of(steps, steps[:9]))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"device": "simulated"}, "The device isn't the same: a.json has cuda, b.json has simulated."),
        ({"gpu": "B200"}, "The GPU isn't the same: a.json has H200, b.json has B200."),
        ({"model": "b"}, "The model isn't the same: a.json has a, b.json has b."),
        ({"dtype": "float32"}, "The data type isn't the same"),
        ({"clock": "virtual"}, "A microsecond of virtual time is what a cost table says, and none of wall time."),
    ],
)
def test_what_differs_besides_the_fence_is_a_caution(changed: dict[str, str], words: str) -> None:
    one = run_of(steps_of("decode", 2, 2), setting=SETTING, title="a.json")
    other = run_of(steps_of("decode", 2, 2), setting=SETTING | changed, title="b.json")
    said = cautions(one, other)
    assert any(words in sentence for sentence in said), said
    made = page(one, other)
    assert made.count("<li data-caution>") == len(said)
    assert "These two can hardly be compared" in made


def test_two_runs_that_differ_in_nothing_else_call_for_no_caution() -> None:
    one = run_of(steps_of("decode", 2, 2), setting=SETTING)
    assert cautions(one, one) == []
    assert cautions(one, None) == []
    assert "data-caution" not in page(one, one)


def test_a_run_beside_a_capture_is_a_caution(record: Path, capture: Path, tmp_path: Path) -> None:
    told = tmp_path / "told.json"
    report(record, out=tmp_path / "page.html", against=capture, json_file=told)
    said = json.loads(told.read_text(encoding="utf-8"))["cautions"]
    assert any("a profiler slows the host's calls" in sentence for sentence in said)
    assert any("full.sqlite doesn't say it" in sentence for sentence in said)


def changed(record: Path, folder: Path, **run: Any) -> Path:  # noqa: ANN401 - JSON
    told = json.loads(record.read_text(encoding="utf-8"))
    told["run"] |= run
    path = folder / "changed.json"
    path.write_text(json.dumps(told), encoding="utf-8")
    return path


def test_a_record_says_what_it_ran_on_and_the_json_has_the_caution(record: Path, tmp_path: Path) -> None:
    facts: RunFacts = read_facts(record)
    assert facts.setting == {"device": "simulated", "clock": "virtual", "model": "embedded", "dtype": "float32"}
    other = changed(record, tmp_path, device="cuda", clock="wall", gpu="H200")
    told = tmp_path / "told.json"
    report(record, out=tmp_path / "page.html", against=other, json_file=told)
    content = json.loads(told.read_text(encoding="utf-8"))
    assert "The device isn't the same: fine.json has simulated, changed.json has cuda." in content["cautions"]
    assert content["comparison"]["mode"] == "decode"
    assert [side["key"] for side in content["comparison"]["sides"]] == ["run.fine", "other.fine"]
