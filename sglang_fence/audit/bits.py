"""Tensors bit for bit: compared, and condensed to a number."""

from __future__ import annotations

import torch

_BY_SIZE = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_STEP, _MIX = 0x9E3779B97F4A7C1, 0x58F0A3C8E1D2B495  # odd, so that products modulo 2^64 lose nothing


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor as integers of the same size, so that a NaN equals itself and 0.0 isn't −0.0."""
    return tensor if tensor.dtype is torch.bool else tensor.contiguous().view(_BY_SIZE[tensor.element_size()])


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether both hold the same bits; the host waits for the answer."""
    return one.shape == other.shape and torch.equal(bits(one), bits(other))


def weights(tensor: torch.Tensor) -> torch.Tensor:
    """Return what :func:`condense` adds to the elements of ``tensor``: int64, all different, far from one another."""
    return (torch.arange(tensor.numel(), device=tensor.device) * 2 + 1) * _STEP


def condense(tensor: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
    """Return a sum over all elements, each mixed with its place, that tells contents and order apart: int64 ``[1]``."""
    mixed = (bits(tensor).flatten().long() + by) * _MIX
    return ((mixed ^ (mixed >> 31)) * _STEP).sum()[None]
