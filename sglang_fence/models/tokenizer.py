"""Tokenizers: bytes for the embedded model, Transformers' for a checkpoint, ids alone for one without."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from sglang_fence.errors import PromptError

if TYPE_CHECKING:
    from collections.abc import Sequence

BOS, EOS, PAD = 256, 257, 258
"""The byte tokenizer's special tokens, after the 256 bytes."""

VOCAB_SIZE = 260


class Tokenizer(Protocol):
    """Text to tokens and back."""

    def encode(self, text: str) -> list[int]:
        """Tokens of a prompt, with whatever the model wants in front."""

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of generated tokens, special ones left out."""


class ByteTokenizer:
    """One token a byte, BOS in front."""

    def encode(self, text: str) -> list[int]:
        """BOS, then the UTF-8 bytes."""
        return [BOS, *text.encode()]

    def decode(self, tokens: Sequence[int]) -> str:
        """UTF-8; bytes that aren't become U+FFFD."""
        return bytes(token for token in tokens if token < BOS).decode(errors="replace")


class CheckpointTokenizer:
    """The tokenizer that ships with a checkpoint."""

    def __init__(self, tokenizer: Any) -> None:  # noqa: ANN401 - Transformers' tokenizers share no static type
        self._tokenizer = tokenizer

    def encode(self, text: str) -> list[int]:
        """As the checkpoint's tokenizer does by default."""
        return [int(token) for token in self._tokenizer(text)["input_ids"]]

    def decode(self, tokens: Sequence[int]) -> str:
        """Special tokens left out."""
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=True))


class NoTokenizer:
    """For a checkpoint without a tokenizer: prompts must be ``input_ids``, texts stay empty."""

    def __init__(self, model: str) -> None:
        self._model = model

    def encode(self, text: str) -> list[int]:
        """Refuse.

        Raises:
            PromptError: always.
        """
        msg = f"{self._model} has no tokenizer, so the text {text[:20]!r} can't be encoded: give JSONL with input_ids"
        raise PromptError(msg)

    def decode(self, tokens: Sequence[int]) -> str:  # noqa: ARG002 - the protocol's shape
        """The empty string."""
        return ""
