"""A randomly initialised Llama of a given size, as a checkpoint in a folder: nothing is downloaded."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch

from sglang_fence.errors import ConfigError, ModelError
from sglang_fence.models.loading import bars_on_terminals_only

if TYPE_CHECKING:
    from pathlib import Path

_HEAD_DIM = 64
_CONTEXT = 4096
_SEED = 20_240_229
_GAIN = 2.4
"""``initializer_range`` times the root of the width, as in the embedded model: see its config for why."""


@dataclass(frozen=True, slots=True)
class ModelSize:
    """What a Llama is measured by."""

    hidden_size: int = 1024
    layers: int = 8
    vocab_size: int = 32_000

    def __post_init__(self) -> None:
        if self.hidden_size < _HEAD_DIM or self.hidden_size % _HEAD_DIM:
            msg = f"--hidden-size {self.hidden_size}: give a multiple of {_HEAD_DIM}, the size of a head"
            raise ConfigError(msg)
        if self.layers < 1:
            msg = f"--layers {self.layers}: give 1 or more"
            raise ConfigError(msg)

    def to_json(self) -> dict[str, Any]:
        """Return the sizes."""
        return asdict(self)


def write_checkpoint(size: ModelSize, folder: Path, dtype: torch.dtype) -> None:
    """Write a Llama of ``size`` into ``folder``; the same each time, and without an end token.

    Raises:
        ModelError: Transformers isn't installed.
    """
    try:
        from transformers import LlamaConfig, LlamaForCausalLM  # noqa: PLC0415 - an extra, and slow to import
    except ImportError as error:
        msg = "bench runtime needs Transformers: pip install 'sglang-fence[model]'"
        raise ModelError(msg) from error
    heads = size.hidden_size // _HEAD_DIM
    config: Any = LlamaConfig(
        vocab_size=size.vocab_size,
        hidden_size=size.hidden_size,
        intermediate_size=size.hidden_size * 11 // 4,
        num_hidden_layers=size.layers,
        num_attention_heads=heads,
        num_key_value_heads=max(1, heads // 4),
        max_position_embeddings=_CONTEXT,
        initializer_range=_GAIN / math.sqrt(size.hidden_size),
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)
        model: Any = LlamaForCausalLM(config)
    with bars_on_terminals_only():
        model.to(dtype).save_pretrained(folder)
