"""``staged``: the backend of a draft-extend that is prepared before verification.

| mode | reads | declares |
|---|---|---|
| draft-extend | ``req_to_token`` and the mapping, all before the replay | PRE_REPLAY (audited) |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from sglang_fence.attention.trtllm_mha import TRTLLMMHAAttnBackend
from sglang_fence.contract import ForwardMode, SharedReadEnds

if TYPE_CHECKING:
    from sglang_fence.attention.batch import ForwardBatch


class StagedAttnBackend(TRTLLMMHAAttnBackend):
    """Snapshots a draft-extend as its base does an extend."""

    name = "staged"
    deviations: ClassVar[dict[ForwardMode, str]] = {
        **TRTLLMMHAAttnBackend.deviations,
        ForwardMode.DRAFT_EXTEND: "staged before verification: one snapshot takes all that it reads, before the replay",
    }

    def shared_read_ends(self, mode: ForwardMode) -> SharedReadEnds:
        """A draft-extend reads all it needs before the replay; its batch is loaded from the relays alone."""
        if mode.is_draft_extend():
            return SharedReadEnds.PRE_REPLAY
        return super().shared_read_ends(mode)

    def snapshots(self, batch: ForwardBatch) -> bool:
        """Whether all tables are read outside the graph."""
        return batch.mode.is_draft_extend() or super().snapshots(batch)
