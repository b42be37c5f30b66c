"""Every backend, served: the tokens are right, and nothing that the fence has to order is out of order."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
import torch

from sglang_fence.attention import registry
from sglang_fence.attention.deepseek_v4 import DeepSeekV4AttnBackend
from sglang_fence.attention.registry import parse_spec
from sglang_fence.attention.selection import CompressedKeys, Reach
from sglang_fence.attention.sparse import SparseAttnBackend
from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.engine.engine import Engine
from sglang_fence.engine.options import EngineOptions
from sglang_fence.engine.requests import Request, SamplingParams
from sglang_fence.models.loading import ModelOptions, embedded_causal_lm
from sglang_fence.observe.summary import Summary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sglang_fence.device.protocol import DeviceModule
    from sglang_fence.memory.kv_pool import KVStore
    from sglang_fence.memory.request_pool import ReqToTokenPool

GRAPHS = ("full", "breakable", "off")
NEW_TOKENS = 12
DENSE = (
    "hybrid:trtllm_mha,native",
    "hybrid:native,trtllm_mha",
    "tbo:native",
    "tbo:trtllm_mha",
    "minimax:native,trtllm_mha",
)
OTHERS = (
    "sparse",
    "deepseek_v4",
    "minimax:sparse,trtllm_mha",
    "minimax:deepseek_v4,trtllm_mha",
    "hybrid:native,deepseek_v4",
    "hybrid:deepseek_v4,sparse",
    "tbo:deepseek_v4",
    "hybrid_linear:native",
    "hybrid_linear:trtllm_mha",
)


def _prompts(seed: int, count: int, longest: int, shortest: int = 1) -> list[list[int]]:
    rng = random.Random(seed)  # noqa: S311 - the same prompts each time
    return [[256, *(rng.randrange(256) for _ in range(rng.randrange(shortest, longest + 1) - 1))] for _ in range(count)]


SHORT = _prompts(1, 8, 120)
LONG = _prompts(2, 3, 300, 260)


@dataclass(frozen=True)
class Served:
    """What came of a run."""

    outputs: list[list[int]]
    reasons: set[str]
    resolved: set[tuple[str, str]]


def _serve(spec: str, prompts: Sequence[list[int]] = SHORT, **options: Any) -> Served:  # noqa: ANN401 - engine options
    device, summary = SimulatedDevice(), Summary()
    options.setdefault("prefix_cache", not parse_spec(spec).keeps_state)
    engine = Engine(device, EngineOptions(attention=spec, max_running=4, fence="fine", **options), [summary])
    requests = [Request(str(i), prompt, SamplingParams(max_new_tokens=NEW_TOKENS)) for i, prompt in enumerate(prompts)]
    for request in requests:
        engine.check(request)
    engine.serve(requests)
    assert not device.hazards
    return Served(
        [request.output for request in requests],
        {reason for mode in summary.modes.values() for reason in mode.reasons},
        {(mode, ends) for (mode, _), figures in summary.modes.items() for ends in figures.resolved},
    )


@cache
def _generate(prompt: tuple[int, ...]) -> list[int]:
    with torch.inference_mode():
        out = _reference().generate(torch.tensor([prompt]), max_new_tokens=NEW_TOKENS, do_sample=False)
    tokens: list[int] = out[0, len(prompt) :].tolist()
    return tokens


@cache
def _reference() -> Any:  # noqa: ANN401 - Transformers' model
    return embedded_causal_lm()


def _dense(prompts: Sequence[list[int]] = SHORT) -> list[list[int]]:
    return [_generate(tuple(prompt)) for prompt in prompts]


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("spec", DENSE)
def test_dense_wrappers_give_the_tokens_of_generate(spec: str, graph: str) -> None:
    assert _serve(spec, graph=graph).outputs == _dense()


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("spec", OTHERS)
def test_overlap_changes_no_token(spec: str, graph: str) -> None:
    overlapped = _serve(spec, graph=graph)
    assert overlapped.outputs == _serve(spec, graph=graph, overlap=False).outputs


@pytest.mark.parametrize("spec", ["tbo:trtllm_mha", "tbo:native", "deepseek_v4", "minimax:sparse,native"])
def test_chunks_and_shortage_change_no_token(spec: str) -> None:
    plain = _serve(spec, LONG)
    assert _serve(spec, LONG, chunk=50).outputs == plain.outputs
    assert _serve(spec, LONG, kv_tokens=512).outputs == plain.outputs


def test_chunks_and_shortage_change_no_recurrent_state() -> None:
    plain = _serve("hybrid_linear:native", LONG)
    assert _serve("hybrid_linear:native", LONG, chunk=50).outputs == plain.outputs
    assert _serve("hybrid_linear:native", LONG, kv_tokens=512).outputs == plain.outputs


def test_linear_layers_are_not_dense() -> None:
    assert _serve("hybrid_linear:native").outputs != _dense()


@pytest.mark.parametrize("spec", ["sparse", "deepseek_v4", "minimax:sparse,native", "hybrid:native,sparse"])
def test_what_selects_pages_differs_from_dense_on_long_prompts(spec: str) -> None:
    assert _serve(spec, LONG).outputs != _dense(LONG)


class _SparseSeesAll(SparseAttnBackend):
    def __init__(
        self,
        device: DeviceModule,
        requests: ReqToTokenPool,
        kv: KVStore,
        *,
        compressed: CompressedKeys | None = None,
    ) -> None:
        super().__init__(device, requests, kv, compressed=compressed, reach=Reach(1000, 1))


class _DeepSeekSeesAll(DeepSeekV4AttnBackend):
    def __init__(
        self,
        device: DeviceModule,
        requests: ReqToTokenPool,
        kv: KVStore,
        *,
        compressed: CompressedKeys | None = None,
        dspark: bool = False,
    ) -> None:
        reach = Reach(1000, 32)
        super().__init__(device, requests, kv, compressed=compressed, dspark=dspark, reach=reach)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("spec", ["sparse", "deepseek_v4", "minimax:sparse,native"])
def test_what_selects_all_pages_is_dense(spec: str, graph: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.LEAVES, "sparse", _SparseSeesAll)
    monkeypatch.setitem(registry.LEAVES, "deepseek_v4", _DeepSeekSeesAll)
    assert _serve(spec, LONG, graph=graph).outputs == _dense(LONG)


@pytest.mark.parametrize("spec", ["deepseek_v4", "minimax:deepseek_v4,trtllm_mha"])
def test_sliding_layers_stay_whole(spec: str) -> None:
    model = ModelOptions(sliding_window=32)
    native = _serve("native", LONG, model=model)
    assert _serve(spec, LONG, model=model).outputs == native.outputs


class _SmallSnapshots(DeepSeekV4AttnBackend):
    def __init__(
        self,
        device: DeviceModule,
        requests: ReqToTokenPool,
        kv: KVStore,
        *,
        compressed: CompressedKeys | None = None,
        dspark: bool = False,
    ) -> None:
        super().__init__(device, requests, kv, compressed=compressed, dspark=dspark, snapshot_pages=5)


@pytest.mark.parametrize("spec", ["deepseek_v4", "tbo:deepseek_v4", "hybrid:deepseek_v4,native"])
def test_an_extend_without_a_snapshot_is_coarse_and_right(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = [*SHORT[:4], *LONG]
    fitting = _serve(spec, prompts)
    assert fitting.resolved >= {("extend", "PRE_REPLAY")}
    assert not fitting.reasons
    monkeypatch.setitem(registry.LEAVES, "deepseek_v4", _SmallSnapshots)
    live = _serve(spec, prompts)
    assert live.reasons == {"snapshot_missing"}
    assert live.outputs == fitting.outputs


@pytest.mark.parametrize("spec", ["hybrid:trtllm_mha,native", "tbo:trtllm_mha", "hybrid_linear:trtllm_mha"])
def test_an_extend_is_fine_where_all_that_read_have_a_snapshot(spec: str) -> None:
    served = _serve(spec)
    assert not served.reasons
    assert served.resolved == {("extend", "PRE_REPLAY"), ("decode", "IN_REPLAY")}
