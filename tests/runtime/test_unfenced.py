"""Without the fence: hazards are found and named, and tokens tear. With it, under the very same costs, they don't."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.runtime.combinations import ATTENTION, GRAPHS, UNFENCED, Combination
from tests.runtime.commandline import CommandLine, write_prompts
from tests.runtime.prompts import handing_over, mixed, sliding
from tests.runtime.reference import WINDOW, Reference, References

if TYPE_CHECKING:
    from tests.runtime.prompts import Prompt

LATE_GATHER = Path(__file__).parents[1] / "data" / "costs" / "late_gather.json"

READERS = {"gather_page_table", "extend_layer", "snapshot_metadata"}
WRITERS = {
    "req_to_token": {"assign_req_to_token", "rewrite_req_to_token"},
    "full_to_swa": {"map_full_to_swa", "evict_swa"},
}


def kernel(label: str) -> str:
    """Return a kernel's name without its graph and its number."""
    return label.rsplit("/", maxsplit=1)[-1].split("#", maxsplit=1)[0]


def check_named(hazard: dict[str, Any], steps: int) -> None:
    """Check that a hazard says all that it takes to find it."""
    first, second = hazard["first"], hazard["second"]
    assert hazard["kind"] == "WAR"
    assert kernel(first) in READERS
    assert kernel(second) in WRITERS[hazard["buffer"]]
    assert hazard["rows"] == sorted(set(hazard["rows"]))
    assert hazard["rows"]
    # Preparation writes for the step that comes; result processing, for the step before the one that runs.
    assert hazard["second_step"] - hazard["first_step"] in (-1, 1)
    assert 0 <= hazard["first_step"] < steps
    assert 0 <= hazard["second_step"] < steps
    assert hazard["missing"] == (
        f"no event recorded on 'forward' after {first} is waited for on 'schedule' before {second}"
    )


@pytest.mark.parametrize("window", [None, WINDOW], ids=["full", "window"])
@pytest.mark.parametrize("combination", UNFENCED, ids=str)
def test_hazards_are_found_and_named(combination: Combination, window: int | None, cli: CommandLine) -> None:
    prompts = write_prompts(cli.folder / "prompts.jsonl", mixed(5, 12))
    flags = [] if window is None else ["--sliding-window", window]
    ran = cli.run("--prompts", prompts, *combination.flags(), *flags)
    report = ran.report
    assert ran.code == 1
    assert report["fence"]["disabled"] == report["steps"]
    assert report["hazards"]
    assert report["hazard_count"] == len(report["hazards"])
    assert {hazard["buffer"] for hazard in report["hazards"]} == ({"req_to_token"} if window is None else set(WRITERS))
    extend = "extend_layer" if combination.attention == "native" else "snapshot_metadata"
    assert {kernel(hazard["first"]) for hazard in report["hazards"]} == {"gather_page_table", extend}
    for hazard in report["hazards"]:
        check_named(hazard, report["steps"])
        assert (
            f"WAR {hazard['buffer']} rows {hazard['rows']}: {hazard['first']} (step {hazard['first_step']}), "
            f"then {hazard['second']} (step {hazard['second_step']}); missing: {hazard['missing']}"
        ) in ran.out


def test_the_plain_loop_needs_no_fence(cli: CommandLine) -> None:
    prompts = write_prompts(cli.folder / "prompts.jsonl", mixed(5, 12))
    ran = cli.run("--prompts", prompts, "--no-overlap", "--fence", "off", "--sliding-window", WINDOW)
    assert ran.code == 0
    assert not ran.report["hazards"]
    assert ran.report["fence"]["absent"] == ran.report["steps"]


def check_tearing(cli: CommandLine, prompts: list[Prompt], reference: Reference, *flags: object) -> None:
    """Check that tokens are torn without a fence, and only then."""
    path = write_prompts(cli.folder / "prompts.jsonl", prompts)
    expected = [reference.answer(prompt) for prompt in prompts]
    common = ("--prompts", path, "--costs", LATE_GATHER, *flags)
    torn = cli.run(*common, "--fence", "off")
    assert torn.code == 1
    assert torn.outputs != expected
    for fence in ("fine", "coarse"):
        ran = cli.run(*common, "--fence", fence)
        assert ran.code == 0
        assert ran.outputs == expected
        assert not ran.report["hazards"]


@pytest.mark.parametrize("attention", ATTENTION)
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("cache", ["--prefix-cache", "--no-prefix-cache"])
def test_a_window_evicted_too_early_tears_tokens(
    graph: str, attention: str, cache: str, cli: CommandLine, references: References
) -> None:
    flags = ("--graph", graph, "--attention", attention, cache, "--sliding-window", WINDOW)
    check_tearing(cli, sliding(2), references.window, *flags)


@pytest.mark.parametrize("attention", ATTENTION)
@pytest.mark.parametrize("graph", GRAPHS)
def test_a_row_handed_over_too_early_tears_tokens(
    graph: str, attention: str, cli: CommandLine, references: References
) -> None:
    flags = ("--graph", graph, "--attention", attention, "--prefix-cache", "--max-running", 2)
    check_tearing(cli, handing_over(0, references.full), references.full, *flags)
