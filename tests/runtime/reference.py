"""Transformers' ``generate``, one request at a time: what the runtime's tokens are measured by."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from transformers import MistralConfig, MistralForCausalLM

from sglang_fence.models.loading import embedded_causal_lm, embedded_config
from sglang_fence.models.tokenizer import ByteTokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.runtime.prompts import Prompt

WINDOW = 32
TIE = 1e-4


class Reference:
    """One model, with its answers kept."""

    def __init__(self, causal_lm: Any) -> None:  # noqa: ANN401 - Transformers' models share no static type
        self._causal_lm = causal_lm
        self._answers: dict[tuple[tuple[int, ...], int], list[int]] = {}

    def greedy(self, ids: Sequence[int], max_new_tokens: int) -> list[int]:
        """Generated tokens, an end token included."""
        key = (tuple(ids), max_new_tokens)
        if key not in self._answers:
            self._answers[key] = self._generate(list(ids), max_new_tokens)
        return self._answers[key]

    def answer(self, prompt: Prompt) -> list[int]:
        """Like :meth:`greedy`, up to the token that completes a stop text."""
        found = self.greedy(prompt.ids, prompt.params.max_new_tokens)
        for count in range(1, len(found) + 1):
            text = ByteTokenizer().decode(found[:count])
            if any(stop in text for stop in prompt.params.stop):
                return found[:count]
        return found

    def is_tie(self, ids: Sequence[int], ours: Sequence[int], theirs: Sequence[int]) -> bool:
        """Whether the reference found its token and ours equally good where the two part."""
        pairs = zip(ours, theirs, strict=False)
        parting = next((index for index, (one, other) in enumerate(pairs) if one != other), None)
        if parting is None:
            return False  # one goes on where the other ends
        with torch.inference_mode():
            logits = self._causal_lm(torch.tensor([[*ids, *theirs[:parting]]])).logits[0, -1]
        best = logits.topk(2)
        return float(best.values[0] - best.values[1]) <= TIE and ours[parting] in best.indices.tolist()

    def _generate(self, ids: list[int], max_new_tokens: int) -> list[int]:
        with torch.inference_mode():
            out = self._causal_lm.generate(
                torch.tensor([ids]),
                attention_mask=torch.ones((1, len(ids)), dtype=torch.int64),
                max_new_tokens=max_new_tokens,
                do_sample=False,
                use_cache=True,
            )
        found: list[int] = out[0, len(ids) :].tolist()
        return found


class References:
    """The embedded model's references: as it is, and with a sliding window."""

    @cached_property
    def full(self) -> Reference:
        """The embedded Llama."""
        return Reference(embedded_causal_lm())

    @cached_property
    def window(self) -> Reference:
        """A Mistral with the embedded model's weights and a window of 32 positions, the current one included."""
        config = MistralConfig(**embedded_config(), sliding_window=WINDOW)
        causal_lm = MistralForCausalLM(config).eval()
        causal_lm.load_state_dict(embedded_causal_lm().state_dict())
        return Reference(causal_lm)
