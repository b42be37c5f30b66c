"""Attention over paged keys and values, given the slots. Plain PyTorch, float32 or bf16, captured as it stands.

Shapes: queries ``[tokens, heads, head_dim]``, caches ``[slots, kv_heads, head_dim]``, slots int64 ``[lines, length]``
with 0 (the padding slot) where there is no token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn.functional import scaled_dot_product_attention

if TYPE_CHECKING:
    from collections.abc import Sequence


def slots_of(table: torch.Tensor, rows: torch.Tensor, seq_lens: torch.Tensor) -> torch.Tensor:
    """Gather the slots of ``rows`` from ``req_to_token``; positions from ``seq_lens`` on become slot 0."""
    slots = table[rows]
    position = torch.arange(slots.shape[1], device=slots.device)
    return torch.where(position < seq_lens[:, None], slots, 0)


def to_swa(slots: torch.Tensor, mapping: torch.Tensor, page_size: int) -> torch.Tensor:
    """Translate full slots to sliding-window slots; unmapped pages become the padding page."""
    return mapping[slots // page_size] * page_size + slots % page_size


def line_mask(positions: torch.Tensor, length: int, window: int | None) -> torch.Tensor:
    """Bool ``[lines, 1, width, length]``: what each of the line's tokens, at ``positions`` ``[lines, width]``, sees."""
    at = positions[:, :, None]
    position = torch.arange(length, device=positions.device)
    seen = position <= at
    if window is not None:
        seen &= position > at - window
    return seen[:, None]


def line_attention(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    slots: torch.Tensor,
    mask: torch.Tensor,
) -> torch.Tensor:
    """The same number of query tokens for each line, one line after the other: decode, verify."""
    lines = slots.shape[0]
    out = scaled_dot_product_attention(
        query.unflatten(0, (lines, -1)).transpose(1, 2),
        keys[slots].transpose(1, 2),
        values[slots].transpose(1, 2),
        attn_mask=mask,
        enable_gqa=True,
    )
    return out.transpose(1, 2).flatten(0, 1)


def extend_mask(
    positions: torch.Tensor,
    token_lines: torch.Tensor,
    lines: int,
    length: int,
    window: int | None,
) -> torch.Tensor:
    """Bool ``[tokens, lines · length]``: what each token may see of all lines' keys laid side by side."""
    line = torch.arange(lines, device=positions.device)[None, :, None]
    position = torch.arange(length, device=positions.device)[None, None]
    at = positions[:, None, None]
    seen = (token_lines[:, None, None] == line) & (position <= at)
    if window is not None:
        seen &= position > at - window
    return seen.flatten(1)


def extend_attention_static(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    slots: torch.Tensor,
    mask: torch.Tensor,
) -> torch.Tensor:
    """Many query tokens a line, in shapes that a graph can keep: every token against every line, masked."""
    flat = slots.flatten()
    out = scaled_dot_product_attention(
        query.transpose(0, 1)[None],
        keys[flat].transpose(0, 1)[None],
        values[flat].transpose(0, 1)[None],
        attn_mask=mask,
        enable_gqa=True,
    )
    return out[0].transpose(0, 1)


def extend_attention_ragged(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    slots: torch.Tensor,
    lens: Sequence[tuple[int, int]],
    window: int | None,
) -> torch.Tensor:
    """Many query tokens a line, line by line.

    Args:
        query: all lines' tokens, one line after the other.
        keys: the cache.
        values: the cache.
        slots: ``[lines, length]``.
        lens: for each line, its new tokens and its whole length.
        window: sliding window in tokens, None for full attention.
    """
    out = torch.empty_like(query)
    start = 0
    for line, (new, whole) in enumerate(lens):
        at = torch.arange(whole - new, whole, device=query.device)[:, None]
        position = torch.arange(whole, device=query.device)
        seen = position <= at
        if window is not None:
            seen &= position > at - window
        part = extend_attention_static(query[start : start + new], keys, values, slots[line, :whole], seen)
        out[start : start + new] = part
        start += new
    return out
