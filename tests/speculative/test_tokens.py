"""With every algorithm the tokens are those of Transformers' ``generate``, and no step goes unexplained."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from sglang_fence.contract import FallbackReason, FenceKind
from tests.speculative.pairs import Row, all_pairs, pairs_of, pairwise
from tests.speculative.serving import (
    ALGORITHMS,
    PLAIN_BACKENDS,
    WINDOW,
    Served,
    check_sound,
    check_tokens,
    prompts,
    serve,
)

PARAMETERS = (ALGORITHMS, PLAIN_BACKENDS, ("fine", "coarse"), ("full", "breakable"))
PAIRWISE = pairwise(PARAMETERS)
PROMPTS = prompts()


def _serve_and_check(row: Row) -> Served:
    algorithm, attention, fence, graph = row
    served = serve(PROMPTS, speculative=algorithm, attention=attention, fence=fence, graph=graph, max_running=24)
    check_tokens(served, PROMPTS)
    check_sound(served)
    kinds = {step.fence for step in served.steps}
    if fence == "coarse":
        assert kinds == {FenceKind.COARSE}
        assert {step.reason for step in served.steps} == {FallbackReason.FORCED}
    print(f"{' '.join(row)}: {served.acceptance:.4f} of the drafts accepted in {served.scheduler.steps} steps")  # noqa: T201 - shown by pytest -rP
    return served


def test_the_prompts_are_what_they_should_be() -> None:
    lengths = [len(prompt.tokens) for prompt in PROMPTS]
    assert (len(PROMPTS), min(lengths), max(lengths)) == (64, 1, 300)
    assert max(prompt.new_tokens for prompt in PROMPTS) == 64
    beginnings = {prompt.tokens[:16] for prompt in PROMPTS if len(prompt.tokens) > 16}
    assert len(beginnings) < sum(length > 16 for length in lengths) - 8, "some share their beginning"


def test_each_pair_of_values_is_served() -> None:
    assert set().union(*(pairs_of(row) for row in PAIRWISE)) == all_pairs(PARAMETERS)
    assert len(all_pairs(PARAMETERS)) == 6 * 4 + 2 * (6 * 2) + 2 * (4 * 2) + 2 * 2
    assert len(PAIRWISE) == len(set(PAIRWISE)) == len(ALGORITHMS) * len(PLAIN_BACKENDS), "as few as there can be"


@pytest.mark.parametrize("row", PAIRWISE, ids="-".join)
def test_the_tokens_are_those_of_generate(row: Row) -> None:
    _serve_and_check(row)


@pytest.mark.matrix
@pytest.mark.parametrize("row", list(product(*PARAMETERS)), ids="-".join)
def test_the_tokens_are_those_of_generate_everywhere(row: Row) -> None:
    _serve_and_check(row)


@pytest.mark.parametrize(
    ("algorithm", "attention", "graph"),
    [
        ("ngram", "trtllm_mha", "breakable"),
        ("standalone", "native", "full"),
        ("eagle", "tbo:native", "breakable"),
        ("multi_layer_eagle", "trtllm_mha", "full"),
        ("dflash", "hybrid:trtllm_mha,native", "breakable"),
        ("dspark", "trtllm_mha", "off"),
    ],
)
def test_shortage_small_chunks_and_a_window_change_no_token(algorithm: str, attention: str, graph: str) -> None:
    some = prompts(14)
    options: dict[str, Any] = {"speculative": algorithm, "attention": attention, "graph": graph, "max_running": 6}
    short = serve(some, kv_tokens=448, **options)
    check_tokens(short, some)
    check_sound(short)
    assert short.scheduler.retractions > 0
    windowed = serve(some, window=WINDOW, chunk=16, **options)
    check_tokens(windowed, some, WINDOW)
    check_sound(windowed)


@pytest.mark.matrix
@pytest.mark.parametrize("graph", ["full", "breakable", "off"])
@pytest.mark.parametrize("attention", PLAIN_BACKENDS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_shortage_small_chunks_and_a_window_change_no_token_anywhere(
    algorithm: str, attention: str, graph: str
) -> None:
    some = prompts(14)
    options: dict[str, Any] = {"speculative": algorithm, "attention": attention, "graph": graph, "max_running": 6}
    variations: tuple[dict[str, Any], ...] = ({}, {"kv_tokens": 448}, {"chunk": 16}, {"prefix_cache": False})
    for window, sizes in product((None, WINDOW), variations):
        served = serve(some, window=window, **options, **sizes)
        check_tokens(served, some, window)
        check_sound(served)
