"""Tokenizers: bytes there and back, and a plain refusal where there is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_fence.errors import PromptError
from sglang_fence.models.tokenizer import BOS, EOS, PAD, VOCAB_SIZE, ByteTokenizer, NoTokenizer


@given(text=st.text())
def test_text_comes_back_from_its_bytes(text: str) -> None:
    tokens = ByteTokenizer().encode(text)
    assert tokens[0] == BOS
    assert all(0 <= token < 256 for token in tokens[1:])
    assert ByteTokenizer().decode(tokens) == text


@given(tokens=st.lists(st.integers(0, VOCAB_SIZE - 1)))
def test_any_tokens_can_be_decoded_and_special_ones_are_left_out(tokens: list[int]) -> None:
    tokenizer = ByteTokenizer()
    assert tokenizer.decode(tokens) == tokenizer.decode([token for token in tokens if token < 256])


def test_bytes_that_are_no_text_become_replacement_characters() -> None:
    assert ByteTokenizer().decode([0xC3, ord("a"), EOS, PAD]) == "\ufffda"


def test_without_a_tokenizer_a_text_is_refused_and_ids_have_no_text() -> None:
    tokenizer = NoTokenizer("some/model")
    with pytest.raises(PromptError, match=r"some/model has no tokenizer.*'hello'.*give JSONL with input_ids"):
        tokenizer.encode("hello")
    assert tokenizer.decode([1, 2]) == ""
