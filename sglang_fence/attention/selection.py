"""Selecting pages: a compressed key a page, the best pages for each query, attention over those alone.

Shapes: ``t`` query tokens, ``g`` kv heads, ``r`` query heads for each of them, ``d`` head_dim, ``l`` lines, ``p`` pages
of the context, ``s`` tokens a page. All static: nothing depends on data, so a graph can keep it.

A query at position ``q`` sees whole pages: those that its window of ``W`` tokens touches (its own at least), up to
``q``, and of the pages before them the ``k`` best. Those are full, so their compressed keys are final: what is selected
does not depend on how a prompt was cut into chunks, nor on drafted tokens that were turned down.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.nn.functional import scaled_dot_product_attention

from sglang_fence.device.buffers import SharedBuffer

if TYPE_CHECKING:
    from sglang_fence.device.protocol import DeviceModule
    from sglang_fence.memory.kv_pool import KVStore


class CompressedKeys:
    """The mean key of each page, for each full layer; it counts once the page is full.

    Kept beside the KV store: float32 ``[pages + 1, layers, kv_heads, head_dim]``, since the rows that kernels declare
    come first. Every backend that writes keys of the same requests must update the same one.
    """

    def __init__(self, device: DeviceModule, kv: KVStore, name: str = "compressed_keys") -> None:
        layout = kv.layout
        shape = (kv.buffer.rows, len(layout.windows), layout.kv_heads, layout.head_dim)
        means = torch.zeros(shape, dtype=torch.float32, device=device.torch_device)
        self.buffer = SharedBuffer(device, name, means)
        self.page_size = kv.page_size

    def update(self, layer: int, keys: torch.Tensor, written: torch.Tensor) -> None:
        """Compress the pages of the slots ``written`` (int64 ``[t]``) anew from the layer's ``keys``.

        Tokens of one page all write the same mean, so it doesn't matter which of them is last.
        """
        pages = written // self.page_size
        self.buffer.tensor[pages, layer] = keys.unflatten(0, (-1, self.page_size))[pages].float().mean(1)

    def of(self, layer: int, pages: torch.Tensor) -> torch.Tensor:
        """Compressed keys of ``pages``, int64 ``[l, p]``, as ``[l, p, g, d]``."""
        return self.buffer.tensor[pages, layer]


@dataclass(frozen=True, slots=True)
class Reach:
    """How far a query looks."""

    top_pages: int
    """``k``: pages selected by their compressed keys."""
    window: int
    """``W``: the last tokens, the query's own included; rounded up to whole pages."""


def score_pages(
    query: torch.Tensor,
    compressed: torch.Tensor,
    token_lines: torch.Tensor | None,
) -> torch.Tensor:
    """Score each page of a token's line, ``[t, g, p]``: its compressed key times the sum of the group's queries.

    Args:
        query: ``[t, g · r, d]``.
        compressed: ``[l, p, g, d]``.
        token_lines: int64 ``[t]``; None where each line has as many tokens.
    """
    grouped = query.unflatten(1, (compressed.shape[2], -1)).float().sum(2)
    if token_lines is None:
        by_line = grouped.unflatten(0, (len(compressed), -1))
        return torch.einsum("lwgd,lpgd->lwgp", by_line, compressed).flatten(0, 1)
    tokens = torch.arange(len(grouped), device=grouped.device)
    return torch.einsum("tgd,lpgd->tlgp", grouped, compressed)[tokens, token_lines]


def select_pages(
    scores: torch.Tensor,
    positions: torch.Tensor,
    page_size: int,
    reach: Reach,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Choose pages for each query; of equal scores the earlier page wins.

    Args:
        scores: float32 ``[t, g, p]``.
        positions: int64 ``[t]``.
        page_size: ``s``.
        reach: ``k`` and ``W``.

    Returns:
        Indices of pages within the request, int64 ``[t, g, n]``, and what is seen of each, bool ``[t, g, n, s]``.
    """
    pages = scores.shape[2]
    first = (positions - reach.window + 1).clamp_min(0) // page_size  # of the window; the pages before are candidates
    index = torch.arange(pages, device=scores.device)
    ranked = scores.masked_fill(index >= first[:, None, None], float("-inf"))
    top = ranked.sort(dim=-1, descending=True, stable=True).indices[..., : reach.top_pages]
    chosen = index[: top.shape[2]] < first[:, None]
    near = min(pages, -(-(reach.window - 1) // page_size) + 1)
    last = first[:, None] + torch.arange(near, device=scores.device)
    inside = last <= (positions // page_size)[:, None]
    selected = torch.cat([top, last.clamp_max(pages - 1)[:, None].expand(-1, top.shape[1], -1)], dim=2)
    valid = torch.cat([chosen, inside], dim=1)
    at = selected[..., None] * page_size + torch.arange(page_size, device=scores.device)
    return selected, valid[:, None, :, None] & (at <= positions[:, None, None, None])


def selected_attention(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    pages: torch.Tensor,
    seen: torch.Tensor,
) -> torch.Tensor:
    """Attend to the selected pages alone; nothing else is read.

    Args:
        query: ``[t, g · r, d]``.
        keys: ``[slots, g, d]``.
        values: likewise.
        pages: physical pages, int64 ``[t, g, n]``.
        seen: bool ``[t, g, n, s]``.

    Returns:
        ``[t, g · r, d]``.
    """
    heads, size = pages.shape[1], seen.shape[3]
    head = torch.arange(heads, device=pages.device)[:, None]
    gathered = [cache.unflatten(0, (-1, size))[pages, :, head].flatten(2, 3) for cache in (keys, values)]
    out = scaled_dot_product_attention(
        query.unflatten(1, (heads, -1)),
        gathered[0],
        gathered[1],
        attn_mask=seen.flatten(2)[:, :, None],
    )
    return out.flatten(1, 2)
