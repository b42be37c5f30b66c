"""What ``sglang-fence run`` writes: ``--output``, ``--json``, and the same files each time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from sglang_fence.contract import FallbackReason
from tests.runtime.combinations import PAIRWISE, UNFENCED, Combination
from tests.runtime.commandline import CommandLine, read_json, read_jsonl, subprocess_run, write_prompts
from tests.runtime.prompts import handing_over, mixed

if TYPE_CHECKING:
    from pathlib import Path

    from tests.runtime.commandline import Ran
    from tests.runtime.reference import References

REPORT_KEYS = {
    *("device", "requests", "steps", "tokens", "tokens_per_s", "fence", "reasons", "modes", "downgrades"),
    *("slack_us", "wait_us", "hazards"),
}
FENCE_KEYS = {"fine", "coarse", "disabled", "absent"}
SHARES = {"p50", "p90", "p99", "max"}
HAZARD_KEYS = {"kind", "buffer", "rows", "first", "second", "first_step", "second_step", "missing"}
LINE_KEYS = {"id", "prompt_tokens", "output_ids", "text", "finish_reason"}


def check_report(ran: Ran) -> None:
    """Check the report's keys and types, and that its sums agree."""
    report = ran.report
    assert report.keys() >= REPORT_KEYS
    assert report["device"] == "simulated"
    assert report["fence"].keys() == FENCE_KEYS
    assert sum(report["fence"].values()) == report["steps"] > 0
    assert sum(report["reasons"].values()) == report["fence"]["coarse"]
    assert report["reasons"].keys() <= {reason.value for reason in FallbackReason}
    assert sum(mode["steps"] for mode in report["modes"].values()) == report["steps"]
    for key in ("fence", "reasons", "downgrades"):
        total = {name: count for name, count in report[key].items() if count}
        assert total == _sum(mode[key] for mode in report["modes"].values())
    assert report["requests"] == len(ran.lines)
    assert report["tokens"] == sum(map(len, ran.outputs))
    assert report["tokens_per_s"] > 0
    for durations in [report[key] for key in ("slack_us", "wait_us")]:
        assert durations.keys() == SHARES
        values = [durations[share] for share in ("p50", "p90", "p99", "max")]
        assert values == [None] * 4 or values == sorted(values)
    assert all(hazard.keys() == HAZARD_KEYS for hazard in report["hazards"])


def _sum(counts: Any) -> dict[str, int]:  # noqa: ANN401 - a generator of JSON objects
    total: dict[str, int] = {}
    for one in counts:
        for name, count in one.items():
            total[name] = total.get(name, 0) + count
    return total


@pytest.mark.parametrize("combination", [*PAIRWISE, UNFENCED[0]], ids=str)
def test_the_report_has_its_keys_and_its_sums_agree(combination: Combination, cli: CommandLine) -> None:
    path = write_prompts(cli.folder / "prompts.jsonl", mixed(6, 12))
    ran = cli.run("--prompts", path, *combination.flags())
    check_report(ran)
    assert ran.code == (1 if combination.fence == "off" else 0)
    assert bool(ran.report["hazards"]) == (combination.fence == "off")
    downgraded = combination.graph == "off"
    assert bool(ran.report["downgrades"]) == downgraded


def test_the_report_counts_a_request_that_failed(cli: CommandLine) -> None:
    path = write_prompts(cli.folder / "prompts.jsonl", [{"prompt": "one"}, {"input_ids": []}])
    ran = cli.run("--prompts", path)
    check_report(ran)
    assert (ran.report["requests"], ran.report["failed"]) == (2, 1)


def test_output_lines_stand_in_the_order_of_the_prompts(cli: CommandLine, references: References) -> None:
    prompts = handing_over(1, references.full, pairs=6)  # some end early, so requests don't finish in order
    path = write_prompts(cli.folder / "prompts.jsonl", prompts)
    ran = cli.run("--prompts", path)
    assert [line["id"] for line in ran.lines] == list(range(len(prompts)))
    assert all(line.keys() == LINE_KEYS for line in ran.lines)
    assert [line["prompt_tokens"] for line in ran.lines] == [len(prompt.ids) for prompt in prompts]
    assert ran.outputs == [references.full.answer(prompt) for prompt in prompts]
    assert {line["finish_reason"] for line in ran.lines} == {"stop", "length"}


def test_ids_are_the_users_own(cli: CommandLine) -> None:
    asked: list[dict[str, object]] = [{"id": "b", "prompt": "one"}, {"id": 7, "prompt": "two"}, {"prompt": "three"}]
    path = write_prompts(cli.folder / "prompts.jsonl", asked)
    assert [line["id"] for line in cli.run("--prompts", path).lines] == ["b", 7, 2]


def test_a_text_file_is_a_prompt_a_line(cli: CommandLine, references: References) -> None:
    path = cli.folder / "prompts.txt"
    path.write_text("A pump lost its prime.\n\nWhy does bread need salt?\n", encoding="utf-8")
    ran = cli.run("--prompts", path, "--max-new-tokens", 9, "--requests", 3)
    texts = ["A pump lost its prime.", "Why does bread need salt?", "A pump lost its prime."]
    assert ran.outputs == [references.full.greedy([256, *text.encode()], 9) for text in texts]
    assert [line["id"] for line in ran.lines] == [0, 1, "0#1"]


def test_the_built_in_prompts_are_served(cli: CommandLine) -> None:
    ran = cli.run("--requests", 5, "--max-new-tokens", 4)
    assert [len(output) for output in ran.outputs] == [4] * 5
    assert ran.code == 0
    assert "What the fence did" in ran.out


def _files(folder: Path, hash_seed: str, *flags: object) -> tuple[dict[str, Any], list[dict[str, Any]], str]:
    report, output = folder / "report.json", folder / "output.jsonl"
    args = ("run", "--device", "simulated", "--requests", 12, "--json", report, "--output", output, *flags)
    ended = subprocess_run(*args, env={"PYTHONHASHSEED": hash_seed})
    assert ended.code in (0, 1), ended
    content = read_json(report)
    assert content.pop("wall_s") >= 0
    return content, read_jsonl(output), ended.out


@pytest.mark.parametrize("fence", ["fine", "off"])
def test_the_same_command_gives_the_same_files(fence: str, tmp_path: Path) -> None:
    flags = ("--fence", fence, "--kv-tokens", 640, "--sliding-window", 32, "--temperature", 0.7)
    assert _files(tmp_path, "1", *flags) == _files(tmp_path, "2", *flags)


def test_files_hold_what_a_json_reader_expects(cli: CommandLine) -> None:
    cli.run("--requests", 2)
    text = (cli.folder / "report.json").read_text(encoding="utf-8")
    assert text.endswith("}\n")

    def refuse(constant: str) -> None:
        raise AssertionError(constant)  # NaN and Infinity are no JSON

    json.loads(text, parse_constant=refuse)
