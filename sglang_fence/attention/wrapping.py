"""What wrappers have in common: how several children answer as one (R1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.attention.base import base_read_ends
from sglang_fence.contract import SharedReadEnds
from sglang_fence.errors import ContractError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sglang_fence.attention.base import AttentionBackend
    from sglang_fence.contract import ForwardMode


def latest_read_ends(children: Iterable[AttentionBackend], mode: ForwardMode) -> SharedReadEnds:
    """Return the latest that ``children``, those that read in ``mode``, declare (R1)."""
    return SharedReadEnds.max_of(child.shared_read_ends(mode) for child in children)


def joint_deviation(children: Sequence[AttentionBackend], mode: ForwardMode) -> str | None:
    """Say why the latest declaration of ``children`` differs from the base's: what those say that declare it."""
    ends = latest_read_ends(children, mode)
    if ends is base_read_ends(mode):
        return None
    deciding = [child for child in children if child.shared_read_ends(mode) is ends]
    reasons = [(child.name, child.deviation(mode)) for child in deciding]
    return "; ".join(dict.fromkeys(f"{name}: {reason}" for name, reason in reasons if reason)) or None


def require_shared_side(name: str, children: Sequence[AttentionBackend]) -> None:
    """Refuse children that take turns at a request, each with its own of what is kept beside the KV store.

    Raises:
        ContractError: one would read what another should have written.
    """
    kept = [tuple(child.side_buffers) for child in children]
    if any(buffers != kept[0] for buffers in kept):
        msg = (
            f"{name}: its children take turns at a request, but keep different buffers beside the KV store"
            f" ({'; '.join(str(list(buffers)) for buffers in kept)}); hand the same one to each of them"
        )
        raise ContractError(msg)
