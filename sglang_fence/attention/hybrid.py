"""``hybrid``: one child for prefill, one for decode.

| mode | who reads | declares |
|---|---|---|
| extend, mixed, draft-extend | the prefill child | what that child declares (R1) |
| decode, idle | the decode child | what that child declares (R1) |
| target-verify | the one named by ``verify``, by default the decode child | what that child declares (R1) |

The wrapper itself reads nothing. Whatever is asked about a batch goes to the child that serves its mode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from sglang_fence.attention.base import AttentionBackend
from sglang_fence.attention.wrapping import require_shared_side
from sglang_fence.contract import ForwardMode

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from sglang_fence.attention.batch import ForwardBatch
    from sglang_fence.contract import SharedReadEnds
    from sglang_fence.device.buffers import SharedBuffer
    from sglang_fence.device.protocol import Access


class HybridAttnBackend(AttentionBackend):
    """Chooses a child by the mode.

    Args:
        prefill: serves extends and draft-extends.
        decode: serves decodes.
        verify: which of the two serves target-verify.

    Raises:
        ContractError: both keep something beside the KV store, and not the same.
    """

    def __init__(
        self,
        prefill: AttentionBackend,
        decode: AttentionBackend,
        *,
        verify: Literal["decode", "prefill"] = "decode",
    ) -> None:
        super().__init__(decode.device, decode.requests, decode.kv)
        self.name = f"hybrid:{prefill.name},{decode.name}"
        self.prefill = prefill
        self.decode = decode
        self._verify = verify
        require_shared_side(self.name, (prefill, decode))

    def child(self, mode: ForwardMode) -> AttentionBackend:
        """Return the one child that serves ``mode``, and so reads in it."""
        if mode.is_target_verify():
            return self.decode if self._verify == "decode" else self.prefill
        return self.decode if mode.is_decode_or_idle() else self.prefill

    def shared_read_ends(self, mode: ForwardMode) -> SharedReadEnds:
        """Ask the child that reads (R1)."""
        return self.child(mode).shared_read_ends(mode)

    def deviation(self, mode: ForwardMode) -> str | None:
        """See the child's."""
        child = self.child(mode)
        text = child.deviation(mode)
        return None if text is None else f"{child.name}: {text}"

    def has_extend_snapshot(self, batch: ForwardBatch) -> bool:
        """Ask the child that reads (R1)."""
        return self.child(batch.mode).has_extend_snapshot(batch)

    def init_forward_metadata(self, batch: ForwardBatch) -> None:
        """Delegate."""
        self.child(batch.mode).init_forward_metadata(batch)

    def init_forward_metadata_out_graph(self, batch: ForwardBatch, in_capture: bool = False) -> None:  # noqa: FBT001, FBT002 - the contract's signature
        """Delegate."""
        self.child(batch.mode).init_forward_metadata_out_graph(batch, in_capture)

    def init_forward_metadata_in_graph(self, batch: ForwardBatch) -> None:
        """Delegate."""
        self.child(batch.mode).init_forward_metadata_in_graph(batch)

    def init_forward_metadata_segment(self, batch: ForwardBatch, segment: int) -> None:
        """Delegate."""
        self.child(batch.mode).init_forward_metadata_segment(batch, segment)

    def lanes(self, batch: ForwardBatch) -> Sequence[tuple[AttentionBackend, ForwardBatch]]:
        """Delegate: a child may split the batch."""
        return self.child(batch.mode).lanes(batch)

    @property
    def side_buffers(self) -> tuple[SharedBuffer, ...]:
        """Both children's: they share it."""
        return self.decode.side_buffers

    @property
    def captures_extend(self) -> bool:
        """Ask the child that serves extends."""
        return self.child(ForwardMode.EXTEND).captures_extend

    @property
    def verifies_in_one_graph(self) -> bool:
        """Ask the child that serves target-verify."""
        return self.child(ForwardMode.TARGET_VERIFY).verifies_in_one_graph

    def attend(
        self,
        batch: ForwardBatch,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
    ) -> torch.Tensor:
        """Delegate."""
        return self.child(batch.mode).attend(batch, layer, query, key, value)

    def layer_accesses(self, batch: ForwardBatch, layer: int) -> tuple[tuple[Access, ...], tuple[Access, ...]]:
        """Delegate."""
        return self.child(batch.mode).layer_accesses(batch, layer)

    def table_reads(self, batch: ForwardBatch) -> tuple[Access, ...]:
        """Delegate."""
        return self.child(batch.mode).table_reads(batch)
