"""The engine: on a GPU too, tokens are those of Transformers, through external events, whatever the fence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from sglang_fence.engine.engine import Engine
from sglang_fence.engine.options import EngineOptions
from sglang_fence.engine.prompts import built_in, to_request
from sglang_fence.engine.requests import SamplingParams
from sglang_fence.models.loading import ModelOptions, embedded_causal_lm
from sglang_fence.observe.summary import Summary

if TYPE_CHECKING:
    from sglang_fence.engine.requests import Request
    from tests.gpu.conftest import Opened

NEW_TOKENS = 24
COMBINATIONS: dict[str, dict[str, Any]] = {
    "native-full-fine": {"attention": "native", "graph": "full", "fence": "fine", "prefix_cache": False},
    "trtllm_mha-breakable-fine-cached": {"attention": "trtllm_mha", "graph": "breakable", "fence": "fine"},
    "native-full-coarse-small": {"attention": "native", "graph": "full", "fence": "coarse", "kv_tokens": 512},
}


def generated(requests: list[Request], device: torch.device) -> list[list[int]]:
    """What Transformers makes of the prompts, one by one."""
    model = embedded_causal_lm().to(device)
    outputs: list[list[int]] = []
    for request in requests:
        ids = torch.tensor([request.prompt], device=device)
        with torch.inference_mode():
            whole = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW_TOKENS, do_sample=False)
        outputs.append(whole[0, len(request.prompt) :].tolist())
    return outputs


@pytest.mark.parametrize("name", COMBINATIONS)
def test_tokens_are_those_of_generate_and_decode_is_in_replay(opened: Opened, name: str) -> None:
    device, summary = opened.device, Summary()
    options = EngineOptions(model=ModelOptions(dtype="float32"), max_running=8, **COMBINATIONS[name])
    engine = Engine(device, options, [summary])
    params = SamplingParams(max_new_tokens=NEW_TOKENS)
    requests = [to_request(line, engine.model.tokenizer, params) for line in built_in(16, seed=3)]
    for request in requests:
        engine.check(request)
    scheduler = engine.serve(requests)
    assert [request.error for request in requests] == [None] * 16
    assert [request.output for request in requests] == generated(requests, device.torch_device)
    decodes = summary.by_mode()["decode"]
    assert decodes.resolved == {"IN_REPLAY": decodes.steps}
    assert not decodes.downgrades
    assert all(captured.in_graph_metadata_prep_done is not None for captured, _ in engine.decode._graphs.values())
    assert decodes.fence == {options.fence: decodes.steps}
    assert bool(scheduler.retractions) == ("small" in name)
