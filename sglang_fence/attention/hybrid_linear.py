"""``hybrid_linear``: full attention in some layers, linear attention with a recurrent state in the others.

| mode | who reads | declares |
|---|---|---|
| every mode | the list [full, linear] | the later of the two (R1) |

A prefix can't be taken from a cache, since the state behind it is gone; and tokens can't be taken back, so there is no
speculation: see ``keeps_state`` in :mod:`registry`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.attention.by_layer import ByLayerAttnBackend
from sglang_fence.attention.linear import LinearAttnBackend

if TYPE_CHECKING:
    from collections.abc import Collection

    from sglang_fence.attention.base import AttentionBackend


class HybridLinearAttnBackend(ByLayerAttnBackend):
    """Full and linear by layer.

    Args:
        full: serves ``full_layers``.
        full_layers: indices; None: every second layer, from the first on.
        linear: serves all other layers; None: a new one, with a state of its own.
    """

    def __init__(
        self,
        full: AttentionBackend,
        full_layers: Collection[int] | None = None,
        linear: AttentionBackend | None = None,
    ) -> None:
        layers = range(len(full.kv.layout.windows))
        if full_layers is None:
            full_layers = layers[::2]
        if linear is None:
            own = [layer for layer in layers if layer not in full_layers]
            linear = LinearAttnBackend(full.device, full.requests, full.kv, layers=own)
        super().__init__(f"hybrid_linear:{full.name}", full, linear, full_layers)
