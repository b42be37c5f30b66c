"""``native``: the paged base backend.

| mode | reads | declares |
|---|---|---|
| decode, verify | ``req_to_token`` and the mapping, in the graph, once | IN_REPLAY (the base's) |
| extend, draft-extend | both, live, in every layer | UNKNOWN (the base's) |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sglang_fence.attention import paged
from sglang_fence.attention.base import AttentionBackend
from sglang_fence.contract import ForwardMode

if TYPE_CHECKING:
    import torch

    from sglang_fence.attention.batch import ForwardBatch
    from sglang_fence.attention.selection import CompressedKeys
    from sglang_fence.device.buffers import SharedBuffer
    from sglang_fence.device.protocol import Access, DeviceModule
    from sglang_fence.memory.kv_pool import KVStore
    from sglang_fence.memory.request_pool import ReqToTokenPool


@dataclass(slots=True)
class Slots:
    """Slots of one batch in the full pool or in the sliding-window pool."""

    read: torch.Tensor
    """int64 ``[lines, context]``."""
    write: torch.Tensor
    """int64 ``[tokens]``."""
    mask: torch.Tensor | None
    """Bool, what each token may see; None where the ragged kernel works it out."""


@dataclass(slots=True)
class PagedMetadata:
    """What ``native`` prepares: slots for full layers and for sliding ones (the same where there is no window)."""

    full: Slots
    sliding: Slots
    snapshot_of: int | None = None
    """The step whose extend was snapshotted here whole; None: layers read live, or it is no extend."""


class NativeAttnBackend(AttentionBackend):
    """Gathers slots from ``req_to_token``: a decode inside its graph, an extend again in each layer.

    Args:
        device: launches.
        requests: rows.
        kv: pages.
        compressed: kept up to date with each key written, where a backend that selects pages serves the same requests.
    """

    name = "native"

    def __init__(
        self,
        device: DeviceModule,
        requests: ReqToTokenPool,
        kv: KVStore,
        *,
        compressed: CompressedKeys | None = None,
    ) -> None:
        super().__init__(device, requests, kv)
        self.compressed = compressed

    @property
    def side_buffers(self) -> tuple[SharedBuffer, ...]:
        """Compressed keys, where somebody reads them."""
        return () if self.compressed is None else (self.compressed.buffer,)

    def init_forward_metadata_out_graph(self, batch: ForwardBatch, in_capture: bool = False) -> None:  # noqa: FBT001, FBT002 - the contract's signature
        """Masks, from lengths that the batch brought along; nothing shared is read."""
        metadata = self.metadata_for(batch, fresh=in_capture)
        self.device.launch("out_graph_metadata", lambda: self.fill_masks(batch, metadata))

    def init_forward_metadata_in_graph(self, batch: ForwardBatch) -> None:
        """Decode and verify: gather all slots at once. Otherwise nothing, the layers read live."""
        if not self.reads_live(batch):
            self.launch_gather("gather_page_table", batch)

    def attend(
        self,
        batch: ForwardBatch,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
    ) -> torch.Tensor:
        """See the base."""
        metadata = self.metadata_for(batch)
        if self.reads_live(batch):
            self.fill_slots(batch, metadata)
        slots = metadata.full if self.kv.layout.windows[layer] is None else metadata.sliding
        keys, values = self.kv.layer(layer)
        keys[slots.write] = key
        values[slots.write] = value
        compressed = self._compressed(layer)
        if compressed is not None:
            compressed.update(layer, keys, slots.write)
        return self.read(batch, layer, query, slots)

    def read(self, batch: ForwardBatch, layer: int, query: torch.Tensor, slots: Slots) -> torch.Tensor:
        """Attend to the pages, the new tokens' included; shapes as in :meth:`attend`."""
        keys, values = self.kv.layer(layer)
        if batch.width and slots.mask is not None:
            return paged.line_attention(query, keys, values, slots.read, slots.mask)
        if slots.mask is not None:
            return paged.extend_attention_static(query, keys, values, slots.read, slots.mask)
        lens = tuple(zip(batch.query_lens, batch.kv_lens, strict=True))
        return paged.extend_attention_ragged(query, keys, values, slots.read, lens, self.kv.layout.windows[layer])

    def layer_accesses(self, batch: ForwardBatch, layer: int) -> tuple[tuple[Access, ...], tuple[Access, ...]]:
        """An extend's layers read the live tables too."""
        reads, writes = super().layer_accesses(batch, layer)
        if self.reads_live(batch):
            reads = (*reads, *self.table_reads(batch))
        compressed = self._compressed(layer)
        if compressed is not None:
            side: Access = (compressed.buffer, batch.read_pages)
            reads, writes = (*reads, side), (*writes, side)
        return reads, writes

    def reads_live(self, batch: ForwardBatch) -> bool:
        """Whether layers gather from the live tables."""
        return not (batch.mode.is_decode() or batch.mode.is_target_verify())

    def _compressed(self, layer: int) -> CompressedKeys | None:
        """Compressed keys of a full layer. Sliding ones are short as they are, and their slots lie in another pool."""
        return self.compressed if self.kv.layout.windows[layer] is None else None

    def metadata_for(self, batch: ForwardBatch, *, fresh: bool = False) -> PagedMetadata:
        """The batch's metadata, made where there is none yet, or ``fresh`` is asked for."""
        if fresh or self not in batch.metadata:
            batch.metadata[self] = self._new_metadata(batch)
        metadata: PagedMetadata = batch.metadata[self]
        return metadata

    def _new_metadata(self, batch: ForwardBatch) -> PagedMetadata:

        def slots() -> Slots:
            lines, tokens = len(batch.seq_lens), len(batch.tokens)
            like = batch.seq_lens
            return Slots(
                read=like.new_zeros((lines, self.requests.context_len)),
                write=like.new_zeros((tokens,)),
                mask=None,
            )

        full = slots()
        return PagedMetadata(full, full if self.kv.layout.window is None else slots())

    def fill_masks(self, batch: ForwardBatch, metadata: PagedMetadata) -> None:
        """Compute masks from the batch's own lengths and positions."""
        window = self.kv.layout.window
        _set_mask(metadata.full, self._mask(batch, None))
        if metadata.sliding is not metadata.full:
            _set_mask(metadata.sliding, self._mask(batch, window))

    def launch_gather(self, kernel: str, batch: ForwardBatch) -> None:
        """Launch one kernel that reads the tables and keeps the slots in the batch's metadata."""
        metadata = self.metadata_for(batch)
        self.device.launch(kernel, lambda: self.fill_slots(batch, metadata), reads=self.table_reads(batch))

    def launch_fused(self, kernel: str, batch: ForwardBatch) -> None:
        """Launch one kernel that does all: masks, and slots from the tables."""
        metadata = self.metadata_for(batch)

        def body() -> None:
            self.fill_masks(batch, metadata)
            self.fill_slots(batch, metadata)

        self.device.launch(kernel, body, reads=self.table_reads(batch))

    def launch_snapshot(self, batch: ForwardBatch) -> None:
        """Snapshot this very extend: from here on it reads no table."""
        self.launch_fused("snapshot_metadata", batch)
        self.metadata_for(batch).snapshot_of = batch.step

    def is_snapshot_of(self, batch: ForwardBatch) -> bool:
        """Whether :meth:`launch_snapshot` was called for the step that ``batch`` holds now (R8)."""
        return (
            batch.mode is ForwardMode.EXTEND
            and self in batch.metadata
            and self.metadata_for(batch).snapshot_of == batch.step
        )

    def fill_slots(self, batch: ForwardBatch, metadata: PagedMetadata) -> None:
        """Read the tables, inside a kernel."""
        table = self.requests.req_to_token.tensor
        full = metadata.full
        full.read.copy_(paged.slots_of(table, batch.req_rows, batch.seq_lens))
        if batch.token_lines is None:
            full.write.copy_(full.read.gather(1, batch.positions.unflatten(0, (-1, batch.width))).flatten())
        else:
            full.write.copy_(full.read[batch.token_lines, batch.positions])
        if metadata.sliding is not full:
            for own, sliding in ((full.read, metadata.sliding.read), (full.write, metadata.sliding.write)):
                sliding.copy_(self._sliding(own))

    def _sliding(self, slots: torch.Tensor) -> torch.Tensor:
        """Slots of sliding layers; a store without a pool for them (a draft's) keeps them at the full ones."""
        if self.kv.swa is None:
            return slots
        return paged.to_swa(slots, self.kv.swa.full_to_swa.tensor, self.kv.page_size)

    def _mask(self, batch: ForwardBatch, window: int | None) -> torch.Tensor | None:
        length = self.requests.context_len
        if batch.token_lines is None:
            at = batch.positions.unflatten(0, (-1, batch.width))
            seen_from = at if batch.causal else (batch.seq_lens - 1)[:, None].expand_as(at)
            return paged.line_mask(seen_from, length, window)
        if not batch.static:
            return None
        return paged.extend_mask(batch.positions, batch.token_lines, len(batch.seq_lens), length, window)


def _set_mask(slots: Slots, mask: torch.Tensor | None) -> None:
    # In place where there is one already: a captured graph reads this very tensor.
    if slots.mask is None or mask is None:
        slots.mask = mask
    else:
        slots.mask.copy_(mask)
