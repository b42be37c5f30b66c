"""Fixtures: Transformers' ``generate``, with its answers kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from sglang_fence.models.loading import embedded_causal_lm
from sglang_fence.models.tokenizer import ByteTokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from tests.engine.pdmux_serving import Prompt


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Generator[None]:
    """One thread of torch: test processes share the cores, and these models are small."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def generate() -> Callable[[Sequence[int], int], list[int]]:
    """Return the embedded model's greedy ``generate``."""
    causal_lm = embedded_causal_lm()
    answers: dict[tuple[tuple[int, ...], int], list[int]] = {}

    def answer(ids: Sequence[int], new: int) -> list[int]:
        key = (tuple(ids), new)
        if key not in answers:
            with torch.inference_mode():
                out = causal_lm.generate(
                    torch.tensor([list(ids)]),
                    attention_mask=torch.ones((1, len(ids)), dtype=torch.int64),
                    max_new_tokens=new,
                    do_sample=False,
                )
            answers[key] = out[0, len(ids) :].tolist()
        return answers[key]

    return answer


@pytest.fixture(scope="session")
def expected(generate: Callable[[Sequence[int], int], list[int]]) -> Callable[[Sequence[Prompt]], list[list[int]]]:
    """Return what ``generate`` says to prompts, each cut behind the token that completes a stop text."""

    def one(prompt: Prompt) -> list[int]:
        found = generate(prompt.ids, prompt.new)
        for count in range(1, len(found) + 1):
            text = ByteTokenizer().decode(found[:count])
            if any(stop in text for stop in prompt.stop):
                return found[:count]
        return found

    return lambda prompts: [one(prompt) for prompt in prompts]
