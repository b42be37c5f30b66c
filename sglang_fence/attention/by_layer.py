"""``ByLayerAttnBackend``: two children, each with layers of its own; both serve every batch.

| mode | who reads | declares |
|---|---|---|
| every mode | both children | the later of the two (R1); one UNKNOWN makes it UNKNOWN |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.attention.base import AttentionBackend
from sglang_fence.attention.wrapping import joint_deviation, latest_read_ends

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import torch

    from sglang_fence.attention.batch import ForwardBatch
    from sglang_fence.contract import ForwardMode, SharedReadEnds
    from sglang_fence.device.buffers import SharedBuffer
    from sglang_fence.device.protocol import Access


class ByLayerAttnBackend(AttentionBackend):
    """Chooses a child by the layer.

    Args:
        name: see the base.
        first: serves ``first_layers``.
        second: serves all other layers.
        first_layers: indices of layers.
    """

    def __init__(
        self,
        name: str,
        first: AttentionBackend,
        second: AttentionBackend,
        first_layers: Collection[int],
    ) -> None:
        super().__init__(first.device, first.requests, first.kv)
        self.name = name
        self.children = [first, second]
        self._first_layers = frozenset(first_layers)

    def child(self, layer: int) -> AttentionBackend:
        """Return the child that serves ``layer``."""
        return self.children[0] if layer in self._first_layers else self.children[1]

    def shared_read_ends(self, mode: ForwardMode) -> SharedReadEnds:
        """Return the later of both (R1)."""
        return latest_read_ends(self.children, mode)

    def deviation(self, mode: ForwardMode) -> str | None:
        """See the deciding child's."""
        return joint_deviation(self.children, mode)

    def has_extend_snapshot(self, batch: ForwardBatch) -> bool:
        """Both read, so both must have it."""
        return all(child.has_extend_snapshot(batch) for child in self.children)

    def init_forward_metadata(self, batch: ForwardBatch) -> None:
        """Both."""
        for child in self.children:
            child.init_forward_metadata(batch)

    def init_forward_metadata_out_graph(self, batch: ForwardBatch, in_capture: bool = False) -> None:  # noqa: FBT001, FBT002 - the contract's signature
        """Both."""
        for child in self.children:
            child.init_forward_metadata_out_graph(batch, in_capture)

    def init_forward_metadata_in_graph(self, batch: ForwardBatch) -> None:
        """Both."""
        for child in self.children:
            child.init_forward_metadata_in_graph(batch)

    def init_forward_metadata_segment(self, batch: ForwardBatch, segment: int) -> None:
        """Both: a segment may hold layers of each."""
        for child in self.children:
            child.init_forward_metadata_segment(batch, segment)

    def lanes(self, batch: ForwardBatch) -> Sequence[tuple[AttentionBackend, ForwardBatch]]:
        """Serve the batch whole: parts belong to a forward, and children to layers. To split it, wrap this one."""
        return ((self, batch),)

    @property
    def side_buffers(self) -> tuple[SharedBuffer, ...]:
        """What either keeps; a layer is always the same child's, so they need not share it."""
        return tuple(dict.fromkeys(buffer for child in self.children for buffer in child.side_buffers))

    @property
    def captures_extend(self) -> bool:
        """Whether both can."""
        return all(child.captures_extend for child in self.children)

    @property
    def verifies_in_one_graph(self) -> bool:
        """Whether either must."""
        return any(child.verifies_in_one_graph for child in self.children)

    def attend(
        self,
        batch: ForwardBatch,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
    ) -> torch.Tensor:
        """Delegate to the layer's child."""
        return self.child(layer).attend(batch, layer, query, key, value)

    def layer_accesses(self, batch: ForwardBatch, layer: int) -> tuple[tuple[Access, ...], tuple[Access, ...]]:
        """Delegate to the layer's child."""
        return self.child(layer).layer_accesses(batch, layer)

    def table_reads(self, batch: ForwardBatch) -> tuple[Access, ...]:
        """Both children's, each once."""
        return tuple(dict.fromkeys(read for child in self.children for read in child.table_reads(batch)))
