"""Seeded sampling: a request's tokens follow from its seed, not from its company, the fence or the graph."""

from __future__ import annotations

from itertools import product

import pytest

from sglang_fence.engine.requests import SamplingParams
from tests.runtime.combinations import GRAPHS
from tests.runtime.commandline import CommandLine, write_prompts
from tests.runtime.prompts import Prompt, source, tokens
from tests.runtime.serving import serve

NEW = 24


def prompts(seed: int, temperature: float = 0.8, top_p: float = 0.9) -> list[Prompt]:
    """Eight prompts of different lengths; each has a seed of its own."""
    rng = source(11)
    return [
        Prompt(tokens(rng, rng.randint(1, 60)), SamplingParams(NEW, temperature, top_p, seed + index))
        for index in range(8)
    ]


@pytest.fixture(scope="module")
def alone() -> list[list[int]]:
    """Return what each prompt gets when it has the device to itself."""
    return serve(prompts(100), max_running=1, graph="off", overlap=False).outputs


@pytest.mark.parametrize(("fence", "graph"), list(product(["fine", "coarse"], GRAPHS)))
@pytest.mark.parametrize("max_running", [1, 8])
def test_the_same_seed_gives_the_same_tokens(fence: str, graph: str, max_running: int, alone: list[list[int]]) -> None:
    served = serve(prompts(100), max_running=max_running, fence=fence, graph=graph)
    assert served.outputs == alone
    assert not served.hazards


def test_the_same_seed_gives_the_same_tokens_after_a_retraction(alone: list[list[int]]) -> None:
    served = serve(prompts(100), kv_tokens=160)
    assert served.retractions > 0
    assert served.outputs == alone


def test_another_seed_gives_other_tokens(alone: list[list[int]]) -> None:
    others = serve(prompts(200)).outputs
    assert sum(one != other for one, other in zip(alone, others, strict=True)) >= 7


def test_the_same_prompt_with_eight_seeds_gets_different_answers() -> None:
    asked = [Prompt([1, 2, 3], SamplingParams(NEW, 1.0, 1.0, seed)) for seed in range(8)]
    assert len({tuple(output) for output in serve(asked).outputs}) >= 7


def test_a_nucleus_of_one_token_is_greedy() -> None:
    best = serve(prompts(100, temperature=0.0)).outputs
    assert serve(prompts(100, temperature=1.5, top_p=1e-9)).outputs == best
    assert serve(prompts(100, temperature=1.5)).outputs != best


def test_greedy_and_sampled_requests_share_a_batch(alone: list[list[int]]) -> None:
    greedy = prompts(100, temperature=0.0)
    best = serve(greedy).outputs
    mixed = [one for pair in zip(greedy, prompts(100), strict=True) for one in pair]
    outputs = serve(mixed).outputs
    assert outputs[::2] == best
    assert outputs[1::2] == alone


def test_the_options_of_the_command_line_are_the_defaults_of_its_prompts(cli: CommandLine) -> None:
    ids = prompts(0)[0].ids
    asked: list[dict[str, object]] = [
        {"input_ids": ids},
        {"input_ids": ids, "seed": 7},
        {"input_ids": ids, "temperature": 0},
    ]
    path = write_prompts(cli.folder / "prompts.jsonl", asked)
    flags = ("--temperature", 0.8, "--top-p", 0.9, "--max-new-tokens", NEW)
    default, own, best = cli.run("--prompts", path, *flags, "--seed", 3).outputs
    again, own_again, best_again = cli.run("--prompts", path, *flags, "--seed", 4).outputs
    assert default != again
    assert (own, best) == (own_again, best_again)
    expected = serve([Prompt(ids, SamplingParams(NEW, 0.8, 0.9, seed)) for seed in (3, 4, 7)])
    assert [default, again, own] == expected.outputs
