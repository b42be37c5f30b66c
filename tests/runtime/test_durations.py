"""Slack and wait in virtual time: exact, from the command line as from the observer.

In each of these runs a decode takes 210 µs, its metadata the first 10 of them. In ``one_decode`` tables prefill costs
nothing and each request has one decode; in ``steady_decodes`` tables the host takes so long over results that the
forward stream is idle at each launch but that of the first decode, which queues behind a prefill.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sglang_fence.device.simulated.costs import CostTable
from tests.runtime.combinations import ATTENTION
from tests.runtime.commandline import CommandLine, write_prompts
from tests.runtime.prompts import Prompt, greedy, source, tokens
from tests.runtime.serving import serve

COSTS = Path(__file__).parents[1] / "data" / "costs"
SLACK, WAIT = 200.0, 6.0

GRAPHS = ["full", "breakable"]
ONE_DECODE = [("one_decode.json", 0.0), ("one_decode_early.json", WAIT)]
STEADY = [("steady_decodes.json", 0.0), ("steady_decodes_early.json", WAIT)]


def prompts(new_tokens: int, count: int = 8) -> list[Prompt]:
    rng = source(1)
    return [greedy(tokens(rng, rng.randint(1, 20)), new_tokens) for _ in range(count)]


def all_at(value: float | None) -> dict[str, float | None]:
    return dict.fromkeys(("p50", "p90", "p99", "max"), value)


def decodes(cli: CommandLine, asked: list[Prompt], table: str, *flags: object) -> dict[str, Any]:
    path = write_prompts(cli.folder / "prompts.jsonl", asked)
    ran = cli.run("--prompts", path, "--costs", COSTS / table, *flags)
    mode: dict[str, Any] = ran.report["modes"]["decode"]
    return mode


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("attention", ATTENTION)
@pytest.mark.parametrize(("table", "wait"), ONE_DECODE)
def test_one_decode(table: str, wait: float, attention: str, graph: str, cli: CommandLine) -> None:
    flags = ("--attention", attention, "--graph", graph, "--max-running", 1)
    mode = decodes(cli, prompts(2), table, *flags)
    assert mode["steps"] == mode["fence"]["fine"] == 8
    assert mode["slack_us"] == all_at(SLACK)
    assert mode["wait_us"] == all_at(wait)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("attention", ATTENTION)
@pytest.mark.parametrize(("table", "wait"), ONE_DECODE)
def test_one_decode_as_the_observer_sees_it(table: str, wait: float, attention: str, graph: str) -> None:
    costs = CostTable.load(COSTS / table)
    served = serve(prompts(2), costs=costs, attention=attention, graph=graph, max_running=1)
    mode = served.summary.by_mode()["decode"]
    assert mode.slack_us == [SLACK] * 8
    assert mode.wait_us == [wait] * 8


@pytest.mark.parametrize("attention", ATTENTION)
@pytest.mark.parametrize(("table", "wait"), STEADY)
def test_steady_decodes(table: str, wait: float, attention: str, cli: CommandLine) -> None:
    mode = decodes(cli, prompts(30), table, "--attention", attention)
    assert mode["steps"] == 29
    assert mode["slack_us"] == all_at(SLACK)
    assert (mode["wait_us"]["p50"], mode["wait_us"]["p90"]) == (wait, wait)


@pytest.mark.parametrize("attention", ATTENTION)
@pytest.mark.parametrize(("table", "wait"), STEADY)
def test_steady_decodes_as_the_observer_sees_them(table: str, wait: float, attention: str) -> None:
    served = serve(prompts(30), costs=CostTable.load(COSTS / table), attention=attention)
    mode = served.summary.by_mode()["decode"]
    assert mode.slack_us == [SLACK] * 29
    assert mode.wait_us[1:] == [wait] * 28


@pytest.mark.parametrize("flags", [("--fence", "coarse"), ("--graph", "off")], ids=["coarse", "post_replay"])
def test_behind_the_whole_forward_there_is_no_slack(flags: tuple[str, str], cli: CommandLine) -> None:
    mode = decodes(cli, prompts(2), "one_decode.json", "--max-running", 1, *flags)
    assert mode["slack_us"] == all_at(0.0)
    assert mode["wait_us"] == all_at(210.0 - 50.0)


@pytest.mark.parametrize("flags", [("--fence", "off"), ("--no-overlap",)], ids=["off", "plain"])
def test_without_a_barrier_nothing_is_measured(flags: tuple[str, ...], cli: CommandLine) -> None:
    mode = decodes(cli, prompts(2), "one_decode.json", "--max-running", 1, *flags)
    assert mode["slack_us"] == all_at(None)
    assert mode["wait_us"] == all_at(None)
