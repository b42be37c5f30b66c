"""R2: the backend that prepares the replay is the one that is asked where its reads end."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest.mock import create_autospec

import pytest

from sglang_fence.attention.native import NativeAttnBackend
from sglang_fence.contract import ForwardMode, SharedReadEnds

if TYPE_CHECKING:
    from sglang_fence.attention.batch import ForwardBatch
    from tests.runners.conftest import MakeRig


class AnotherMember(NativeAttnBackend):
    """What another stream's group member would be."""

    prepared = 0

    def init_forward_metadata_out_graph(self, batch: ForwardBatch, in_capture: bool = False) -> None:  # noqa: FBT001, FBT002 - the contract's signature
        self.prepared += 1
        super().init_forward_metadata_out_graph(batch, in_capture)

    def shared_read_ends(self, mode: ForwardMode) -> SharedReadEnds:
        return SharedReadEnds.POST_REPLAY if mode.is_decode() else super().shared_read_ends(mode)


@pytest.mark.parametrize("graph", ["full", "breakable", "off"])
def test_preparation_and_resolution_ask_the_member_that_replays(
    graph: str, make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = make_rig(graph=graph, capture=False)
    member = AnotherMember(rig.device, rig.requests, rig.kv)
    monkeypatch.setattr(rig.decode, "_replay_attn_backend", lambda: member)
    rig.runner.attn_backend = create_autospec(NativeAttnBackend, instance=True, spec_set=True)
    rig.decode.capture()
    captured = member.prepared
    assert rig.run_decode(2).ends is SharedReadEnds.POST_REPLAY
    assert member.prepared == captured + 1
    assert rig.runner.attn_backend.method_calls == []  # type: ignore[attr-defined]
