"""Algorithms by name, and algorithms of one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sglang_fence.contract import FallbackReason, FenceKind, ForwardMode
from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.engine.engine import Engine
from sglang_fence.engine.options import EngineOptions
from sglang_fence.errors import ConfigError
from sglang_fence.speculative.algorithm import AlgorithmRegistry, SpeculativeAlgorithm, built_in_algorithms
from sglang_fence.speculative.block import BlockWorker
from sglang_fence.speculative.draft import DraftWorker
from tests.speculative.serving import ALGORITHMS, Served, check_sound, check_tokens, prompts, serve

if TYPE_CHECKING:
    from sglang_fence.speculative.algorithm import SpecContext
    from sglang_fence.speculative.worker import SpeculativeWorker


class Silent(SpeculativeAlgorithm):
    """Drafts blocks, and says nothing of who reads last."""

    name = "silent"

    def make_worker(self, context: SpecContext) -> SpeculativeWorker:
        """Draft as DFLASH."""
        return BlockWorker(self, context, 1)


class Declared(Silent):
    """Drafts blocks, and says that verification reads last."""

    name = "declared"

    def is_last_shared_read_phase(self, mode: ForwardMode, *, staged: bool = False) -> bool:  # noqa: ARG002 - never staged
        """Verification."""
        return mode.is_target_verify()

    def supports_prefill_shared_read_done(self) -> bool:
        """Nothing reads behind a prefill."""
        return True


class SilentDraft(Silent):
    """Drafts with a model, and says nothing of who reads last."""

    name = "silent_draft"

    def make_worker(self, context: SpecContext) -> SpeculativeWorker:
        """Draft as STANDALONE."""
        return DraftWorker(self, context, context.draft_model)


def _serve(algorithm: SpeculativeAlgorithm, *, attention: str, graph: str = "full") -> Served:
    registry = built_in_algorithms()
    registry.register(algorithm)
    some = prompts(8, longest=100)
    served = serve(
        some,
        speculative=algorithm.name,
        algorithms=registry,
        attention=attention,
        graph=graph,
        max_running=4,
        context_len=172,
        chunk=128,
    )
    check_tokens(served, some)
    check_sound(served)
    return served


def test_the_built_in_ones_go_by_their_names() -> None:
    registry = built_in_algorithms()
    assert registry.names == ["none", *sorted(ALGORITHMS)]
    assert registry.get("none") is None
    for name in ALGORITHMS:
        algorithm = registry.get(name)
        assert algorithm is not None
        assert algorithm.name == name


def test_a_registry_is_ones_own() -> None:
    one, other = built_in_algorithms(), built_in_algorithms()
    one.register(Silent())
    assert "silent" in one.names
    assert "silent" not in other.names
    assert AlgorithmRegistry().names == ["none"]


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    known = "none, dflash, dspark, eagle, multi_layer_eagle, ngram, standalone"
    with pytest.raises(ConfigError) as raised:
        Engine(SimulatedDevice(), EngineOptions(speculative="medusa"))
    assert str(raised.value) == f"--speculative medusa: no such algorithm; known are {known}"
    registry = built_in_algorithms()
    registry.register(Silent())
    with pytest.raises(ConfigError, match=r"known are .*, ngram, silent, standalone$"):
        registry.get("medusa")


@pytest.mark.parametrize("taken", ["none", *ALGORITHMS, "silent"])
def test_a_name_that_is_taken_is_refused(taken: str) -> None:
    registry = built_in_algorithms()
    registry.register(Silent())
    algorithm = type("Another", (Silent,), {"name": taken})()
    with pytest.raises(ConfigError, match=f"'{taken}' is registered already: give it another name"):
        registry.register(algorithm)
    assert registry.names == ["none", *sorted((*ALGORITHMS, "silent"))]


@pytest.mark.parametrize("algorithm", [Silent(), SilentDraft()], ids=lambda algorithm: algorithm.name)
@pytest.mark.parametrize("attention", ["native", "trtllm_mha"])
def test_by_default_nothing_is_last_and_every_round_coarse(algorithm: SpeculativeAlgorithm, attention: str) -> None:
    served = _serve(algorithm, attention=attention)
    assert {(step.fence, step.reason) for step in served.rounds} == {
        (FenceKind.COARSE, FallbackReason.NOT_LAST_PHASE),
    }


def test_by_default_a_draft_may_read_behind_a_prefill() -> None:
    served = _serve(Silent(), attention="trtllm_mha")
    assert {step.reason for step in served.prefills} == {FallbackReason.SPEC_READER_FOLLOWS}


@pytest.mark.parametrize("graph", ["full", "breakable", "off"])
def test_one_that_declares_is_fine(graph: str) -> None:
    served = _serve(Declared(), attention="trtllm_mha", graph=graph)
    assert {step.fence for step in served.steps} == {FenceKind.FINE}
