"""Every coarse step says why, and the reasons of all steps add up."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest

from sglang_fence.contract import FallbackReason, FenceKind
from tests.speculative.serving import ALGORITHMS, PLAIN_BACKENDS, Served, check_sound, prompts, serve

GRAPHS = ("full", "breakable", "off")

# Why rounds are coarse; None: they are fine. Stock backends leave a draft-extend unaudited.
ROUNDS: dict[str, set[FallbackReason | None]] = {
    "none": set(),
    "ngram": {FallbackReason.NOT_LAST_PHASE},
    "standalone": {FallbackReason.BACKEND_UNKNOWN},
    "eagle": {FallbackReason.BACKEND_UNKNOWN},
    "multi_layer_eagle": {None, FallbackReason.BACKEND_UNKNOWN},
    "dflash": {None},
    "dspark": {None},
}


def _serve(algorithm: str, attention: str, graph: str, fence: str = "fine") -> Served:
    served = serve(
        prompts(6, longest=40),
        speculative=algorithm,
        attention=attention,
        graph=graph,
        fence=fence,
        max_running=3,
        chunk=64,
        context_len=112,
        page_size=4,
        window=16,
    )
    check_sound(served)
    coarse = sum(step.fence is FenceKind.COARSE for step in served.steps)
    assert Counter(step.reason is not None for step in served.steps)[True] == coarse
    assert {step.fence for step in served.steps} <= {FenceKind.FINE, FenceKind.COARSE}
    return served


def _prefills(algorithm: str, attention: str) -> set[FallbackReason | None]:
    """Why prefills are coarse: what the backend can't do comes first, then who reads behind."""
    if "trtllm_mha" not in attention:
        return {FallbackReason.BACKEND_UNKNOWN}
    return {FallbackReason.SPEC_READER_FOLLOWS} if algorithm == "ngram" else {None}


def _check(algorithm: str, attention: str, graph: str) -> None:
    served = _serve(algorithm, attention, graph)
    assert {step.reason for step in served.rounds} == ROUNDS[algorithm]
    assert {step.reason for step in served.prefills} == _prefills(algorithm, attention)


@pytest.mark.parametrize(
    ("algorithm", "attention", "graph"),
    [
        (algorithm, attention, GRAPHS[(one + other) % 3])
        for (one, algorithm), (other, attention) in product(enumerate(ROUNDS), enumerate(PLAIN_BACKENDS))
    ],
)
def test_each_coarse_step_has_the_reason_that_its_algorithm_gives(algorithm: str, attention: str, graph: str) -> None:
    _check(algorithm, attention, graph)


@pytest.mark.matrix
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("attention", PLAIN_BACKENDS)
@pytest.mark.parametrize("algorithm", ROUNDS)
def test_each_coarse_step_has_the_reason_that_its_algorithm_gives_everywhere(
    algorithm: str, attention: str, graph: str
) -> None:
    _check(algorithm, attention, graph)


@pytest.mark.parametrize("algorithm", ROUNDS)
def test_where_all_is_coarse_all_was_forced(algorithm: str) -> None:
    served = _serve(algorithm, "trtllm_mha", "full", "coarse")
    assert {(step.fence, step.reason) for step in served.steps} == {(FenceKind.COARSE, FallbackReason.FORCED)}


def test_all_algorithms_are_looked_at() -> None:
    assert set(ROUNDS) == {"none", *ALGORITHMS}
