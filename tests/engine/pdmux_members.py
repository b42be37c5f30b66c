"""A backend group whose members differ in what they read, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.attention.native import NativeAttnBackend
from sglang_fence.attention.trtllm_mha import TRTLLMMHAAttnBackend
from sglang_fence.contract import ForwardMode, SharedReadEnds
from sglang_fence.runners.stream_groups import StreamGroup, StreamGroups

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from sglang_fence.attention.base import AttentionBackend
    from sglang_fence.attention.batch import ForwardBatch
    from sglang_fence.device.protocol import DeviceModule


class Early(TRTLLMMHAAttnBackend):
    """Takes its snapshot before the replay, of a decode too."""

    name = "early"

    def shared_read_ends(self, mode: ForwardMode) -> SharedReadEnds:
        return SharedReadEnds.PRE_REPLAY if mode is ForwardMode.DECODE else super().shared_read_ends(mode)

    def init_forward_metadata_out_graph(self, batch: ForwardBatch, in_capture: bool = False) -> None:  # noqa: FBT001, FBT002 - the contract's signature
        self.metadata_for(batch, fresh=in_capture)
        self.launch_fused("snapshot_metadata", batch)

    def init_forward_metadata_in_graph(self, batch: ForwardBatch) -> None:
        """Nothing is left to read."""


def differing_members(monkeypatch: pytest.MonkeyPatch, early: int) -> None:
    """Let engines make groups whose member ``early`` reads before the replay, and whose other one in it."""

    def make(device: DeviceModule, make_member: Callable[[], AttentionBackend]) -> StreamGroups:
        model = make_member()
        kinds = [NativeAttnBackend, NativeAttnBackend]
        kinds[early] = Early
        names = ("decode_alone", "decode_beside_prefill")
        return StreamGroups(
            [
                StreamGroup(device.Stream(name), kind(device, model.requests, model.kv))
                for name, kind in zip(names, kinds, strict=True)
            ]
        )

    monkeypatch.setattr("sglang_fence.engine.engine.make_stream_groups", make)
