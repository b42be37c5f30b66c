"""``trtllm_mha``: the read pattern of TRT-LLM's multi-head attention.

| mode | reads | declares |
|---|---|---|
| decode, verify | ``req_to_token`` and the mapping, by one fused kernel in the graph | IN_REPLAY (the base's) |
| extend | both, sliding-window write locations too, all before the replay | PRE_REPLAY (audited) |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from sglang_fence.attention.native import NativeAttnBackend
from sglang_fence.contract import ForwardMode, SharedReadEnds

if TYPE_CHECKING:
    from sglang_fence.attention.batch import ForwardBatch


class TRTLLMMHAAttnBackend(NativeAttnBackend):
    """One fused gather for a decode; one snapshot before the replay for an extend."""

    name = "trtllm_mha"
    deviations: ClassVar[dict[ForwardMode, str]] = {
        ForwardMode.EXTEND: "one snapshot before the replay takes all that an extend reads, SWA write locations too",
    }

    def shared_read_ends(self, mode: ForwardMode) -> SharedReadEnds:
        """An extend reads all it needs before the replay: see :meth:`has_extend_snapshot`."""
        if mode is ForwardMode.EXTEND:
            return SharedReadEnds.PRE_REPLAY
        return super().shared_read_ends(mode)

    def init_forward_metadata_out_graph(self, batch: ForwardBatch, in_capture: bool = False) -> None:  # noqa: FBT001, FBT002 - the contract's signature
        """Extend: the snapshot. Otherwise nothing but room for what the graph gathers."""
        self.metadata_for(batch, fresh=in_capture)
        if self.snapshots(batch):
            self.launch_snapshot(batch)

    def init_forward_metadata_in_graph(self, batch: ForwardBatch) -> None:
        """Decode and other graphs: masks and slots by one fused kernel. Extend: nothing, the snapshot has it all."""
        if not self.snapshots(batch):
            self.launch_fused("gather_page_table", batch)

    def has_extend_snapshot(self, batch: ForwardBatch) -> bool:
        """The snapshot lives in the batch's own metadata, so no other batch's can be mistaken for it."""
        return self.is_snapshot_of(batch)

    def reads_live(self, batch: ForwardBatch) -> bool:  # noqa: ARG002 - the base's signature
        """No layer reads a live table."""
        return False

    def snapshots(self, batch: ForwardBatch) -> bool:
        """Whether all tables are read outside the graph."""
        return batch.mode is ForwardMode.EXTEND
