"""Attention that isn't plain: Transformers can't be asked, but overlap and speculation must not change a token."""

from __future__ import annotations

from functools import cache
from itertools import product

import pytest

from sglang_fence.contract import FallbackReason, FenceKind, ForwardMode, SharedReadEnds
from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.engine.engine import Engine
from sglang_fence.engine.options import EngineOptions
from sglang_fence.errors import ConfigError
from sglang_fence.graphs.breakable import BreakableGraph
from sglang_fence.graphs.full import FullGraph
from sglang_fence.speculative.block import BlockWorker
from sglang_fence.speculative.worker import SpeculativeWorker
from tests.speculative.serving import ALGORITHMS, Served, check_sound, generated, prompts, serve

GRAPHS = ("full", "breakable", "off")
SELECTING = ("deepseek_v4", "sparse", "minimax:sparse,native")
OTHERS = (*SELECTING, "hybrid:native,deepseek_v4", "hybrid:deepseek_v4,sparse", "minimax:deepseek_v4,trtllm_mha")
WANTED = prompts(12)


def _serve(attention: str, algorithm: str = "none", graph: str = "full", *, overlap: bool = True) -> Served:
    served = serve(
        WANTED,
        attention=attention,
        speculative=algorithm,
        graph=graph,
        overlap=overlap,
        fence="fine",
        max_running=6,
        chunk=256,
    )
    assert [request.error for request in served.requests] == [None] * len(WANTED)
    return served


@cache
def _plain(attention: str) -> list[list[int]]:
    """Return the tokens of the plain loop, without speculation."""
    served = _serve(attention, overlap=False)
    assert {step.fence for step in served.steps} == {FenceKind.ABSENT}
    return served.outputs


@pytest.mark.parametrize("attention", [*SELECTING, "hybrid_linear:native"])
def test_it_is_not_plain(attention: str) -> None:
    assert _plain(attention) != [generated(prompt) for prompt in WANTED]


@pytest.mark.parametrize(
    ("attention", "algorithm", "graph"),
    [
        (attention, algorithm, GRAPHS[(one + other) % 3])
        for (one, attention), (other, algorithm) in product(enumerate(SELECTING), enumerate(("none", *ALGORITHMS)))
    ],
)
def test_neither_overlap_nor_speculation_changes_a_token(attention: str, algorithm: str, graph: str) -> None:
    served = _serve(attention, algorithm, graph)
    assert served.outputs == _plain(attention)
    check_sound(served)


@pytest.mark.matrix
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("algorithm", ["none", *ALGORITHMS])
@pytest.mark.parametrize("attention", OTHERS)
def test_neither_overlap_nor_speculation_changes_a_token_anywhere(attention: str, algorithm: str, graph: str) -> None:
    test_neither_overlap_nor_speculation_changes_a_token(attention, algorithm, graph)
    if algorithm != "none":
        assert _serve(attention, algorithm, graph, overlap=False).outputs == _plain(attention)


@pytest.mark.parametrize("graph", GRAPHS)
def test_overlap_changes_no_token_of_a_recurrent_state(graph: str) -> None:
    served = _serve("hybrid_linear:native", graph=graph)
    assert served.outputs == _plain("hybrid_linear:native")
    check_sound(served)


def test_a_recurrent_state_takes_no_token_back() -> None:
    with pytest.raises(ConfigError, match="hybrid_linear:native"):
        Engine(SimulatedDevice(), EngineOptions(attention="hybrid_linear:native", speculative="dflash"))


def _verifies(served: Served) -> set[SharedReadEnds]:
    phases = [phase for step in served.rounds for phase in step.phases]
    return {phase.resolved for phase in phases if phase.mode is ForwardMode.TARGET_VERIFY}


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if name != "dspark"])
@pytest.mark.parametrize("attention", ["deepseek_v4", "hybrid:native,deepseek_v4"])
def test_deepseek_v4_verifies_post_replay(attention: str, algorithm: str, graph: str) -> None:
    served = _small(attention, algorithm, graph)
    assert _verifies(served) == {SharedReadEnds.POST_REPLAY}
    fine = {step.resolved for step in served.rounds if step.fence is FenceKind.FINE}
    if algorithm in {"dflash", "multi_layer_eagle"}:
        assert fine == {SharedReadEnds.POST_REPLAY}
    else:
        assert fine == set()
        assert {step.reason for step in served.rounds} == {
            FallbackReason.NOT_LAST_PHASE if algorithm == "ngram" else FallbackReason.BACKEND_UNKNOWN,
        }


@pytest.mark.parametrize("graph", ["full", "breakable"])
@pytest.mark.parametrize("attention", ["deepseek_v4", "hybrid:native,deepseek_v4"])
def test_under_dspark_it_verifies_in_replay_in_one_graph(attention: str, graph: str) -> None:
    served = _small(attention, "dspark", graph)
    assert _verifies(served) == {SharedReadEnds.IN_REPLAY}
    assert {step.fence for step in served.rounds} == {FenceKind.FINE}
    worker = served.engine.worker
    assert isinstance(worker, BlockWorker)
    assert {type(captured) for captured, _ in worker.verify._graphs.values()} == {FullGraph}
    others = FullGraph if graph == "full" else BreakableGraph
    assert {type(captured) for captured, _ in worker.block._graphs.values()} == {others}


def test_elsewhere_a_breakable_verify_is_in_segments() -> None:
    worker = _small("deepseek_v4", "dflash", "breakable").engine.worker
    assert isinstance(worker, SpeculativeWorker)
    graphs = [captured for captured, _ in worker.verify._graphs.values()]
    assert {type(captured) for captured in graphs} == {BreakableGraph}
    assert all(isinstance(captured, BreakableGraph) and captured.segments > 1 for captured in graphs)


def _small(attention: str, algorithm: str, graph: str) -> Served:
    served = serve(
        prompts(5, longest=40),
        attention=attention,
        speculative=algorithm,
        graph=graph,
        max_running=3,
        chunk=64,
        context_len=112,
        page_size=4,
    )
    check_sound(served)
    return served
