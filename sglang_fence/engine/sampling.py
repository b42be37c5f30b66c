"""Sampling: greedy, or temperature and top-p with a seed of its own for each request.

Random numbers are a hash of (seed, position, token), so a request's tokens don't depend on whom it shares a batch with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sglang_fence.engine.requests import SamplingParams

_MIX_1 = -0x40A7B892E31B1A47  # odd 64-bit constants, as signed integers
_MIX_2 = -0x6B2FB644ECCEEE15
_BITS = 24


def pack_params(params: Sequence[SamplingParams], positions: Sequence[int]) -> torch.Tensor | None:
    """Pack what sampling needs, float64 ``[4, lines]``; None when every line is greedy.

    Args:
        params: one a line.
        positions: position of the token that is sampled, one a line.
    """
    if all(one.greedy for one in params):
        return None
    return torch.tensor(
        [
            [one.temperature for one in params],
            [one.top_p for one in params],
            [float(one.seed) for one in params],
            [float(position) for position in positions],
        ],
        dtype=torch.float64,
    )


def sample(logits: torch.Tensor, packed: torch.Tensor | None) -> torch.Tensor:
    """Choose a token a line.

    Args:
        logits: ``[lines, vocab]``.
        packed: from :func:`pack_params`; None for greedy.

    Returns:
        int64 ``[lines]``.
    """
    best = logits.argmax(-1)
    if packed is None:
        return best
    temperature, top_p, seed, position = packed
    scaled = logits.double() / temperature.clamp_min(1e-6)[:, None]
    ordered, order = scaled.softmax(-1).sort(dim=-1, descending=True, stable=True)
    nucleus = ordered.cumsum(-1) - ordered < top_p[:, None]
    kept = torch.zeros_like(nucleus).scatter(-1, order, nucleus)
    noise = -(-_uniform(seed.long(), position.long(), logits.shape[-1]).log()).log()
    drawn = (scaled + noise).masked_fill(~kept, float("-inf")).argmax(-1)
    return torch.where(temperature == 0.0, best, drawn)


def _uniform(seed: torch.Tensor, position: torch.Tensor, vocab: int) -> torch.Tensor:
    token = torch.arange(vocab, device=seed.device)
    mixed = _mix(_mix(_mix(seed)[:, None] + position[:, None]) + token)
    return ((mixed & ((1 << _BITS) - 1)).double() + 0.5) / (1 << _BITS)


def _mix(value: torch.Tensor) -> torch.Tensor:
    # Integer products wrap around. Shifts of negative numbers keep the sign, hence the masks.
    value = (value ^ ((value >> 30) & ((1 << 34) - 1))) * _MIX_1
    value = (value ^ ((value >> 27) & ((1 << 37) - 1))) * _MIX_2
    return value ^ ((value >> 31) & ((1 << 33) - 1))
