"""``minimax``: sparse attention in some layers, dense attention in the others.

| mode | who reads | declares |
|---|---|---|
| every mode | the sparse and the dense child | the later of the two (R1) |

So an extend is fine-grained only where both children's are: one UNKNOWN makes the whole UNKNOWN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.attention.by_layer import ByLayerAttnBackend

if TYPE_CHECKING:
    from collections.abc import Collection

    from sglang_fence.attention.base import AttentionBackend


class MiniMaxHybridAttnBackend(ByLayerAttnBackend):
    """Sparse and dense by layer.

    Args:
        sparse: serves ``sparse_layers``.
        dense: serves all other layers.
        sparse_layers: indices; None: every second layer, from the second on.
    """

    def __init__(
        self,
        sparse: AttentionBackend,
        dense: AttentionBackend,
        sparse_layers: Collection[int] | None = None,
    ) -> None:
        if sparse_layers is None:
            sparse_layers = range(1, len(sparse.kv.layout.windows), 2)
        super().__init__(f"minimax:{sparse.name},{dense.name}", sparse, dense, sparse_layers)
