"""On a GPU every backend can be captured, and its graphs give what it gives eagerly."""

from __future__ import annotations

import pytest

from sglang_fence.attention.declarations import WRAPPED
from sglang_fence.attention.registry import LEAVES, parse_spec
from sglang_fence.device import open_device
from sglang_fence.engine.engine import Engine
from sglang_fence.engine.options import EngineOptions
from sglang_fence.engine.requests import Request, SamplingParams
from sglang_fence.models.loading import ModelOptions

NEW_TOKENS = 8


def _serve(device: str, spec: str, graph: str, dtype: str = "float32") -> list[list[int]]:
    options = EngineOptions(
        model=ModelOptions(dtype=dtype),
        attention=spec,
        graph=graph,
        max_running=4,
        prefix_cache=not parse_spec(spec).keeps_state,
    )
    engine = Engine(open_device(device), options)
    prompts = [[256, *((7 * at + length) % 256 for at in range(length))] for length in (3, 40, 119, 250)]
    requests = [Request(str(i), prompt, SamplingParams(max_new_tokens=NEW_TOKENS)) for i, prompt in enumerate(prompts)]
    for request in requests:
        engine.check(request)
    engine.serve(requests)
    return [request.output for request in requests]


@pytest.mark.gpu
@pytest.mark.parametrize("graph", ["full", "breakable"])
@pytest.mark.parametrize("spec", [*LEAVES, *WRAPPED])
def test_graphs_give_what_the_simulated_device_gives_eagerly(spec: str, graph: str) -> None:
    assert _serve("cuda", spec, graph) == _serve("simulated", spec, "off")


@pytest.mark.gpu
@pytest.mark.parametrize("spec", [*LEAVES, *WRAPPED])
def test_bf16_can_be_captured(spec: str) -> None:
    outputs = _serve("cuda", spec, "full", "bfloat16")
    assert all(0 < len(output) <= NEW_TOKENS for output in outputs)
