"""``deepseek_v4``: the read pattern of DeepSeek V4, selected compressed pages and a window.

| mode | reads | declares |
|---|---|---|
| decode | ``req_to_token`` and the mapping, in the graph, once | IN_REPLAY (the base's) |
| target-verify | both in the graph; a breakable one reads them again in each later segment | POST_REPLAY |
| … under DSPARK | both in the graph, which is one: once | IN_REPLAY (the base's) |
| extend | both, before the replay; a batch too large for the snapshot: live, in every layer | PRE_REPLAY, by snapshot |
| draft-extend | both, live, in every layer | UNKNOWN (the base's) |

A batch that got no snapshot is published UNKNOWN (``snapshot_missing``, R8): see ``has_extend_snapshot``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from sglang_fence.attention.selection import CompressedKeys, Reach
from sglang_fence.attention.sparse import SparseAttnBackend
from sglang_fence.contract import ForwardMode, SharedReadEnds

if TYPE_CHECKING:
    from sglang_fence.attention.batch import ForwardBatch
    from sglang_fence.device.protocol import DeviceModule
    from sglang_fence.memory.kv_pool import KVStore
    from sglang_fence.memory.request_pool import ReqToTokenPool

REACH = Reach(top_pages=4, window=32)
SNAPSHOT_PAGES = 128
"""Pages of one extend, over all its lines, that a snapshot takes."""


class DeepSeekV4AttnBackend(SparseAttnBackend):
    """Selects pages, keeps a window, snapshots extends up to a budget.

    Args:
        device: launches.
        requests: rows.
        kv: pages.
        compressed: see :class:`~sglang_fence.attention.sparse.SparseAttnBackend`.
        reach: what a query sees.
        dspark: serve DSPARK's verification: one full graph, which honours the split in what is prepared outside and
            what in the graph.
        snapshot_pages: the budget of an extend's snapshot.
    """

    name = "deepseek_v4"
    deviations: ClassVar[dict[ForwardMode, str]] = {
        ForwardMode.TARGET_VERIFY: "a breakable verify gathers its page table again in each later segment",
        ForwardMode.EXTEND: "a snapshot of this very batch, where it fits the budget; without one the step is coarse",
    }

    def __init__(
        self,
        device: DeviceModule,
        requests: ReqToTokenPool,
        kv: KVStore,
        *,
        compressed: CompressedKeys | None = None,
        reach: Reach = REACH,
        dspark: bool = False,
        snapshot_pages: int = SNAPSHOT_PAGES,
    ) -> None:
        super().__init__(device, requests, kv, compressed=compressed, reach=reach)
        self._dspark = dspark
        self._snapshot_pages = snapshot_pages

    def shared_read_ends(self, mode: ForwardMode) -> SharedReadEnds:
        """See the table."""
        if mode.is_target_verify() and not self._dspark:
            return SharedReadEnds.POST_REPLAY
        if mode is ForwardMode.EXTEND:
            return SharedReadEnds.PRE_REPLAY
        return super().shared_read_ends(mode)

    def init_forward_metadata_out_graph(self, batch: ForwardBatch, in_capture: bool = False) -> None:  # noqa: FBT001, FBT002 - the contract's signature
        """Extend: the snapshot, if the batch isn't too large for one. Otherwise as ``native``."""
        if batch.mode is ForwardMode.EXTEND and len(batch.read_pages()) <= self._snapshot_pages:
            self.metadata_for(batch, fresh=in_capture)
            self.launch_snapshot(batch)
        else:
            super().init_forward_metadata_out_graph(batch, in_capture)

    def init_forward_metadata_in_graph(self, batch: ForwardBatch) -> None:
        """Extend: nothing. It has its snapshot, or its layers read live."""
        if batch.mode is not ForwardMode.EXTEND:
            super().init_forward_metadata_in_graph(batch)

    def init_forward_metadata_segment(self, batch: ForwardBatch, segment: int) -> None:  # noqa: ARG002 - the contract's signature
        """Read the tables again for a verify: this is why it declares POST_REPLAY."""
        if batch.mode.is_target_verify() and not self._dspark:
            self.launch_gather("regather_page_table", batch)

    @property
    def captures_extend(self) -> bool:
        """Whether layers read live is decided batch by batch; a captured layer can't choose."""
        return False

    @property
    def verifies_in_one_graph(self) -> bool:
        """Under DSPARK."""
        return self._dspark

    def has_extend_snapshot(self, batch: ForwardBatch) -> bool:
        """Asked of the batch's own metadata, which names the step that it was built for."""
        return self.is_snapshot_of(batch)

    def reads_live(self, batch: ForwardBatch) -> bool:
        """An extend without a snapshot does."""
        if batch.mode is ForwardMode.EXTEND:
            return not self.is_snapshot_of(batch)
        return super().reads_live(batch)
