"""``tbo``: two-batch overlap. A batch runs as two halves, layer by layer in turn, each through a child of its own.

| mode | who reads | declares |
|---|---|---|
| every mode | the primary, for the whole batch, and both children, for a half each | the latest of the three (R1) |

The primary's metadata is prepared with the children's, so it reads too; where there is one line, it serves it whole. An
extend is split eagerly alone: where it is cut depends on the prompts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.attention.base import AttentionBackend
from sglang_fence.attention.splitting import Halves, halves
from sglang_fence.attention.wrapping import joint_deviation, latest_read_ends, require_shared_side
from sglang_fence.errors import ContractError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from sglang_fence.attention.batch import ForwardBatch
    from sglang_fence.contract import ForwardMode, SharedReadEnds
    from sglang_fence.device.buffers import SharedBuffer
    from sglang_fence.device.protocol import Access


class TboAttnBackend(AttentionBackend):
    """Splits batches.

    Args:
        primary: serves batches whole.
        children: serve the halves; of the primary's kind, and two objects, since their metadata is of the batch's.

    Raises:
        ContractError: children of another kind, or not the same buffers beside the KV store.
    """

    def __init__(self, primary: AttentionBackend, children: tuple[AttentionBackend, AttentionBackend]) -> None:
        super().__init__(primary.device, primary.requests, primary.kv)
        self.name = f"tbo:{primary.name}"
        self.primary = primary
        self.children = children
        if any(child.name != primary.name for child in children):
            msg = f"{self.name}: its children are {children[0].name} and {children[1].name}; make them of one kind"
            raise ContractError(msg)
        require_shared_side(self.name, (primary, *children))

    def shared_read_ends(self, mode: ForwardMode) -> SharedReadEnds:
        """Return the latest of the primary and all children (R1)."""
        return latest_read_ends((self.primary, *self.children), mode)

    def deviation(self, mode: ForwardMode) -> str | None:
        """See the deciding one's."""
        return joint_deviation((self.primary, *self.children), mode)

    def has_extend_snapshot(self, batch: ForwardBatch) -> bool:
        """All that read must have one, each of its part."""
        return all(reader.has_extend_snapshot(part) for reader, part in self._readers(batch))

    def init_forward_metadata(self, batch: ForwardBatch) -> None:
        """Split, then all that read."""
        self._split(batch, fresh=False)
        for reader, part in self._readers(batch):
            reader.init_forward_metadata(part)

    def init_forward_metadata_out_graph(self, batch: ForwardBatch, in_capture: bool = False) -> None:  # noqa: FBT001, FBT002 - the contract's signature
        """Split, then all that read."""
        self._split(batch, fresh=in_capture)
        for reader, part in self._readers(batch):
            reader.init_forward_metadata_out_graph(part, in_capture)

    def init_forward_metadata_in_graph(self, batch: ForwardBatch) -> None:
        """All that read."""
        for reader, part in self._readers(batch):
            reader.init_forward_metadata_in_graph(part)

    def init_forward_metadata_segment(self, batch: ForwardBatch, segment: int) -> None:
        """All that read."""
        for reader, part in self._readers(batch):
            reader.init_forward_metadata_segment(part, segment)

    def lanes(self, batch: ForwardBatch) -> Sequence[tuple[AttentionBackend, ForwardBatch]]:
        """The halves, each with its child, or the whole with the primary. Those may split theirs again."""
        served = self._readers(batch)[1:] or ((self.primary, batch),)
        return tuple(lane for reader, part in served for lane in reader.lanes(part))

    @property
    def side_buffers(self) -> tuple[SharedBuffer, ...]:
        """Everyone's: they share it."""
        return self.primary.side_buffers

    @property
    def captures_extend(self) -> bool:
        """No: see above."""
        return False

    @property
    def verifies_in_one_graph(self) -> bool:
        """Whether any that reads must."""
        return any(reader.verifies_in_one_graph for reader in (self.primary, *self.children))

    def attend(
        self,
        batch: ForwardBatch,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
    ) -> torch.Tensor:
        """Delegate: a half to its child, a whole batch to the primary."""
        return self._owner(batch).attend(batch, layer, query, key, value)

    def layer_accesses(self, batch: ForwardBatch, layer: int) -> tuple[tuple[Access, ...], tuple[Access, ...]]:
        """Delegate likewise."""
        return self._owner(batch).layer_accesses(batch, layer)

    def table_reads(self, batch: ForwardBatch) -> tuple[Access, ...]:
        """Delegate likewise; a half reads for the whole."""
        return self._owner(batch).table_reads(batch)

    def _split(self, batch: ForwardBatch, *, fresh: bool) -> None:
        """Make the halves: once for a captured batch, for each eager one anew; then load them."""
        if fresh or not batch.static or self not in batch.metadata:
            batch.metadata[self] = halves(batch)
        split = self._halves(batch)
        if split is not None:
            split.load(self.device)

    def _readers(self, batch: ForwardBatch) -> tuple[tuple[AttentionBackend, ForwardBatch], ...]:
        """Who reads for which part: the primary for the whole, each child for its half."""
        split = self._halves(batch)
        if split is None:
            return ((self.primary, batch),)
        return ((self.primary, batch), (self.children[0], split.first), (self.children[1], split.second))

    def _owner(self, batch: ForwardBatch) -> AttentionBackend:
        split = None if batch.whole is None else self._halves(batch.whole)
        if split is None:
            return self.primary
        return self.children[0] if batch is split.first else self.children[1]

    def _halves(self, batch: ForwardBatch) -> Halves | None:
        split: Halves | None = batch.metadata.get(self)
        return split
