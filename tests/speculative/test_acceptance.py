"""How many drafts are accepted, and who is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.engine.engine import Engine
from sglang_fence.engine.options import EngineOptions
from sglang_fence.engine.requests import Request, SamplingParams
from sglang_fence.errors import ConfigError
from sglang_fence.models.loading import embedded_config
from tests.speculative.serving import (
    ALGORITHMS,
    Prompt,
    check_sound,
    check_tokens,
    generated,
    prompts,
    serve,
)

if TYPE_CHECKING:
    from pathlib import Path

# Behind these, the embedded model's best continuation ends in one token over and over.
REPEATING = [Prompt((byte,) * times, 64) for byte, times in ((88, 48), (199, 48), (183, 48), (14, 96), (132, 96))]
CONTEXT = 96 + 64


def test_what_follows_the_repeating_prompts_repeats() -> None:
    for prompt in REPEATING:
        assert len(set(generated(prompt)[-24:])) == 1


def test_ngram_accepts_what_repeats() -> None:
    served = serve(REPEATING, speculative="ngram", context_len=CONTEXT, max_running=4, chunk=128)
    check_tokens(served, REPEATING)
    check_sound(served)
    print(f"ngram on repetition: {served.acceptance:.3f}")  # noqa: T201 - shown by pytest -rP
    assert served.acceptance > 0.3
    # Rounds are fewer than tokens, by what was accepted.
    assert len(served.rounds) < max(len(output) for output in served.outputs) * 2


@pytest.mark.parametrize("draft_tokens", [1, 3, 6])
@pytest.mark.parametrize("graph", ["full", "breakable"])
def test_the_target_accepts_all_its_own_drafts(graph: str, draft_tokens: int) -> None:
    some = prompts(12)
    served = serve(some, speculative="standalone", graph=graph, draft_tokens=draft_tokens, max_running=6)
    check_tokens(served, some)
    check_sound(served)
    assert served.acceptance == 1.0


def test_a_draft_of_its_own_changes_no_token(tmp_path: Path) -> None:
    draft = _save(tmp_path, hidden_size=32, num_hidden_layers=2, num_key_value_heads=4)
    some = prompts(12)
    served = serve(some, speculative="standalone", draft_model=draft, max_running=6)
    check_tokens(served, some)
    check_sound(served)
    assert served.acceptance < 0.5


def test_a_draft_with_another_vocabulary_is_refused(tmp_path: Path) -> None:
    draft = _save(tmp_path, vocab_size=embedded_config()["vocab_size"] + 4)
    with pytest.raises(
        ConfigError, match=r"--draft-model .*: its vocabulary has 264 tokens, the target's 260; a draft"
    ):
        Engine(SimulatedDevice(), EngineOptions(speculative="standalone", draft_model=draft))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_temperature_fails_its_request_alone(algorithm: str) -> None:
    engine = Engine(SimulatedDevice(), EngineOptions(speculative=algorithm, max_running=4, chunk=128))
    wanted = prompts(6)
    requests = [
        Request(
            index,
            list(prompt.tokens),
            SamplingParams(max_new_tokens=prompt.new_tokens, temperature=0.5 if index == 2 else 0.0),
        )
        for index, prompt in enumerate(wanted)
    ]
    for request in requests:
        engine.check(request)
    engine.serve(requests)
    assert [request.finish_reason == "error" for request in requests] == [index == 2 for index in range(6)]
    assert requests[2].error == "speculative decoding accepts greedily; temperature 0.5 can't be had"
    assert requests[2].output == []
    for index in (0, 1, 3, 4, 5):
        assert requests[index].output == generated(wanted[index])


def _save(directory: Path, **changes: int) -> str:
    from transformers import LlamaConfig, LlamaForCausalLM  # noqa: PLC0415 - slow to import

    config: dict[str, Any] = {**embedded_config(), **changes}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        LlamaForCausalLM(LlamaConfig(**config)).save_pretrained(directory)
    return str(directory)
