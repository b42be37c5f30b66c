"""``--model DIR``: checkpoints of every type that is served give the tokens that ``generate`` gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

from tests.runtime.combinations import ATTENTION
from tests.runtime.commandline import CommandLine, write_prompts
from tests.runtime.prompts import greedy, source, tokens
from tests.runtime.reference import Reference

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.runtime.prompts import Prompt

SIZES: dict[str, Any] = {
    "vocab_size": 256,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.3,
    "bos_token_id": 0,
    "eos_token_id": [1, 2, 3, 4, 5, 6, 7, 8],  # often enough for some of the requests to end by one
    "pad_token_id": 0,
}

CONFIGS: dict[str, Callable[[], Any]] = {
    "llama": lambda: LlamaConfig(**SIZES, tie_word_embeddings=True, attention_bias=True),
    "mistral_windowed": lambda: MistralConfig(**SIZES, sliding_window=24, head_dim=16),
    "mistral": lambda: MistralConfig(**SIZES, sliding_window=None),
    "qwen2": lambda: Qwen2Config(**SIZES),
    "qwen2_windowed": lambda: Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=20, max_window_layers=1),
    "qwen3": lambda: Qwen3Config(**SIZES, head_dim=24),
}


@pytest.fixture(scope="module", params=CONFIGS)
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Reference]:
    """Return a directory with random weights and no tokenizer, and the model that was saved there."""
    folder = tmp_path_factory.mktemp(request.param)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        causal_lm = AutoModelForCausalLM.from_config(CONFIGS[request.param]()).eval()
    causal_lm.save_pretrained(folder)
    return folder, Reference(AutoModelForCausalLM.from_pretrained(folder).eval())


def prompts() -> list[Prompt]:
    rng = source(8)
    opening = tokens(rng, 40)
    lengths = [1, 5, 17, 33, 60, 100, 150, 200]
    return [greedy([*(opening if index % 2 else []), *tokens(rng, length)], 40) for index, length in enumerate(lengths)]


@pytest.mark.parametrize("attention", ATTENTION)
def test_tokens_equal_generate(checkpoint: tuple[Path, Reference], attention: str, cli: CommandLine) -> None:
    folder, reference = checkpoint
    path = write_prompts(cli.folder / "prompts.jsonl", prompts())
    flags = ("--attention", attention, "--chunk", 128)
    ran = cli.run("--model", folder, "--prompts", path, *flags)
    assert ran.code == 0
    expected = [reference.greedy(prompt.ids, min(40, 256 - len(prompt.ids))) for prompt in prompts()]
    assert ran.outputs == expected
    assert [line["finish_reason"] for line in ran.lines] == [
        "stop" if output[-1] in SIZES["eos_token_id"] else "length" for output in expected
    ]
    assert {line["text"] for line in ran.lines} == {""}


def test_a_window_is_served_as_a_window(checkpoint: tuple[Path, Reference], cli: CommandLine) -> None:
    folder, _ = checkpoint
    path = write_prompts(cli.folder / "prompts.jsonl", prompts())
    ran = cli.run("--model", folder, "--prompts", path, "--fence", "off")
    buffers = {hazard["buffer"] for hazard in ran.report["hazards"]}
    assert buffers == {"req_to_token", *(["full_to_swa"] if "windowed" in folder.name else [])}


def test_a_text_needs_a_tokenizer(checkpoint: tuple[Path, Reference], cli: CommandLine) -> None:
    folder, _ = checkpoint
    path = cli.folder / "prompts.txt"
    path.write_text("A pump lost its prime.\n", encoding="utf-8")
    line = cli("run", "--device", "simulated", "--model", folder, "--prompts", path).mistake()
    assert str(folder) in line
    assert "has no tokenizer" in line
    assert "give JSONL with input_ids" in line


def test_a_token_outside_the_vocabulary_fails_alone(checkpoint: tuple[Path, Reference], cli: CommandLine) -> None:
    folder, _ = checkpoint
    path = write_prompts(cli.folder / "prompts.jsonl", [{"input_ids": [256]}, {"input_ids": [255]}])
    ran = cli.run("--model", folder, "--prompts", path, "--max-new-tokens", 2)
    assert ran.lines[0]["finish_reason"] == "error"
    assert "token 256" in ran.lines[0]["error"]
    assert ran.lines[1]["finish_reason"] in ("length", "stop")
