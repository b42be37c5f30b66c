"""Planted: declarations that are earlier than what is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sglang_fence.attention.base import base_read_ends
from sglang_fence.attention.deepseek_v4 import DeepSeekV4AttnBackend
from sglang_fence.attention.hybrid import HybridAttnBackend
from sglang_fence.contract import FenceKind, ForwardMode, SharedReadEnds
from sglang_fence.runners.graph_runner import GraphRunner
from tests.planted.planting import check_torn_table, hazards_of, run

if TYPE_CHECKING:
    from sglang_fence.attention.base import AttentionBackend
    from sglang_fence.fence.events import Marker

HYBRID = "hybrid:native,deepseek_v4"
REGATHERS = {"target_verify.1/regather_page_table", "target_verify.2/regather_page_table"}


def _answer_for_itself(_: AttentionBackend, mode: ForwardMode) -> SharedReadEnds:
    return base_read_ends(mode)


@pytest.mark.parametrize("algorithm", ["dflash", "multi_layer_eagle"])
def test_a_wrapper_that_answers_for_itself_is_caught(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert hazards_of(run(speculative=algorithm, attention=HYBRID, graph="breakable")) == set()
    monkeypatch.setattr(HybridAttnBackend, "shared_read_ends", _answer_for_itself)
    planted = run(speculative=algorithm, attention=HYBRID, graph="breakable")
    assert {step.resolved for step in planted.rounds if step.fence is FenceKind.FINE} == {SharedReadEnds.IN_REPLAY}
    check_torn_table(hazards_of(planted), REGATHERS)


@pytest.mark.parametrize("algorithm", ["dflash", "multi_layer_eagle"])
def test_in_replay_for_a_verify_that_reads_again_is_caught(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = run(speculative=algorithm, attention="deepseek_v4", graph="breakable")
    assert hazards_of(sound) == set()
    assert {step.resolved for step in sound.rounds if step.fence is FenceKind.FINE} == {SharedReadEnds.POST_REPLAY}
    monkeypatch.setattr(DeepSeekV4AttnBackend, "shared_read_ends", _answer_for_itself)
    check_torn_table(
        hazards_of(run(speculative=algorithm, attention="deepseek_v4", graph="breakable")),
        REGATHERS,
    )
    # A full graph has one segment, so nothing is read again.
    assert hazards_of(run(speculative=algorithm, attention="deepseek_v4", graph="full")) == set()


@pytest.mark.parametrize("graph", ["full", "breakable"])
@pytest.mark.parametrize("algorithm", ["standalone", "eagle"])
def test_a_draft_extend_that_publishes_before_its_graph_is_caught(
    algorithm: str,
    graph: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert hazards_of(run(speculative=algorithm, attention="trtllm_mha", graph=graph)) == set()
    original = GraphRunner._resolve_shared_read_ends

    def resolve(
        self: GraphRunner,
        backend: AttentionBackend,
        mode: ForwardMode,
        marker: Marker | None,
    ) -> SharedReadEnds:
        return SharedReadEnds.PRE_REPLAY if mode.is_draft_extend() else original(self, backend, mode, marker)

    monkeypatch.setattr(GraphRunner, "_resolve_shared_read_ends", resolve)
    planted = run(speculative=algorithm, attention="trtllm_mha", graph=graph)
    assert {step.fence for step in planted.rounds} == {FenceKind.FINE}
    gather = "draft_extend/gather_page_table" if graph == "full" else "draft_extend.0/gather_page_table"
    check_torn_table(hazards_of(planted), {gather})
