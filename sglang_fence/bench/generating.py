"""Transformers' ``generate``, greedy, with a static cache, not compiled: what the runtime is compared with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from sglang_fence.errors import ModelError
from sglang_fence.models.loading import bars_on_terminals_only

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class Generator:
    """One checkpoint, served by Transformers alone.

    Args:
        folder: the checkpoint.
        device: where it runs.
        dtype: of weights and activations.

    Raises:
        ModelError: the checkpoint can't be loaded.
    """

    def __init__(self, folder: Path, device: torch.device, dtype: torch.dtype) -> None:
        from transformers import AutoModelForCausalLM  # noqa: PLC0415 - an extra, and slow to import

        try:
            with bars_on_terminals_only():
                loaded: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="sdpa")
        except (OSError, ValueError) as error:
            msg = f"model {folder}: Transformers can't load it; give a folder with a checkpoint"
            raise ModelError(msg) from error
        self._model: Any = loaded.to(device).eval()
        # Ends are by length alone, here and in the runtime: every line of a batch is then as long as the others.
        self._model.generation_config.eos_token_id = None
        self._device = device

    def generate(self, prompts: Sequence[Sequence[int]], new_tokens: int) -> list[list[int]]:
        """Return ``new_tokens`` tokens for each of the prompts, which are of one length."""
        ids = torch.tensor(prompts, device=self._device)
        with torch.inference_mode():
            whole = self._model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=new_tokens,
                do_sample=False,
                use_cache=True,
                cache_implementation="static",
                disable_compile=True,
                pad_token_id=0,
            )
        found: list[list[int]] = whole[:, ids.shape[1] :].tolist()
        return found

    def shortfall(self, prompts: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]]) -> float:
        """Return by how much the worst of ``outputs``' tokens falls short of the best, in one plain forward.

        Each token is judged behind the prompt and the tokens before it, so one that parted at a tie doesn't spoil what
        follows. In standard deviations of the logits: 0 where each token is the best, about 4 for a random one.
        """
        worst = 0.0
        for prompt, output in zip(prompts, outputs, strict=True):
            ids = torch.tensor([[*prompt, *output]], device=self._device)
            with torch.inference_mode():
                logits = self._model(ids[:, :-1], use_cache=False).logits[0, len(prompt) - 1 :].float()
            chosen = logits.gather(1, ids[0, len(prompt) :, None])[:, 0]
            short = (logits.max(dim=1).values - chosen) / logits.std(dim=1)
            worst = max(worst, float(short.max()))
        return worst
