"""``sparse``: block-sparse attention, a query's own page and the best of the pages before it.

| mode | reads | declares |
|---|---|---|
| decode, verify | ``req_to_token`` and the mapping, in the graph, once | IN_REPLAY (the base's) |
| extend, draft-extend | both, live, in every layer | UNKNOWN (the base's) |

All else that it reads, keys, values and compressed keys, is written on the forward stream alone. Sliding layers are
attended to whole, as ``native`` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from sglang_fence.attention.native import NativeAttnBackend, PagedMetadata, Slots
from sglang_fence.attention.selection import CompressedKeys, Reach, score_pages, select_pages, selected_attention

if TYPE_CHECKING:
    from sglang_fence.attention.batch import ForwardBatch
    from sglang_fence.device.protocol import DeviceModule
    from sglang_fence.memory.kv_pool import KVStore
    from sglang_fence.memory.request_pool import ReqToTokenPool

REACH = Reach(top_pages=4, window=1)


class SparseAttnBackend(NativeAttnBackend):
    """Selects pages by their compressed keys.

    Args:
        device: launches.
        requests: rows.
        kv: pages.
        compressed: shared with whoever else writes keys of the same requests; None: its own.
        reach: what a query sees.
    """

    name = "sparse"

    def __init__(
        self,
        device: DeviceModule,
        requests: ReqToTokenPool,
        kv: KVStore,
        *,
        compressed: CompressedKeys | None = None,
        reach: Reach = REACH,
    ) -> None:
        self._compressed_keys = CompressedKeys(device, kv) if compressed is None else compressed
        super().__init__(device, requests, kv, compressed=self._compressed_keys)
        self.reach = reach

    def read(self, batch: ForwardBatch, layer: int, query: torch.Tensor, slots: Slots) -> torch.Tensor:
        """Select, then attend to what was selected."""
        if self.kv.layout.windows[layer] is not None:
            return super().read(batch, layer, query, slots)
        size = self.kv.page_size
        table = slots.read[:, ::size] // size
        compressed = self._compressed_keys.of(layer, table)
        scores = score_pages(query, compressed, batch.token_lines)
        lines = batch.token_lines
        if lines is None:
            lines = torch.arange(len(query), device=query.device) // batch.width
        up_to = batch.positions if batch.causal else batch.seq_lens[lines] - 1
        selected, seen = select_pages(scores, up_to, size, self.reach)
        own = table[lines]
        pages = own[:, None].expand(-1, selected.shape[1], -1).gather(2, selected)
        return selected_attention(query, *self.kv.layer(layer), pages, seen)

    def fill_masks(self, batch: ForwardBatch, metadata: PagedMetadata) -> None:
        """Full layers mask what they selected; only sliding ones need a mask beforehand."""
        if metadata.sliding is not metadata.full:
            super().fill_masks(batch, metadata)
