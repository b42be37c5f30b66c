"""Planted: prefills that read on behind the snapshot they publish."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sglang_fence.attention.deepseek_v4 import DeepSeekV4AttnBackend
from sglang_fence.attention.registry import LEAVES
from sglang_fence.attention.trtllm_mha import TRTLLMMHAAttnBackend
from sglang_fence.contract import FallbackReason, FenceKind, ForwardMode
from sglang_fence.errors import UndeclaredAccessError
from tests.planted.planting import LONG, NEXT, SOME, WINDOW, check_torn_table, hazards_of, run

if TYPE_CHECKING:
    import torch

    from sglang_fence.attention.batch import ForwardBatch
    from sglang_fence.device.protocol import Access, DeviceModule
    from sglang_fence.memory.kv_pool import KVStore
    from sglang_fence.memory.request_pool import ReqToTokenPool
    from tests.speculative.serving import Served


class TranslatesLive(TRTLLMMHAAttnBackend):
    """Snapshots an extend, then translates to sliding-window slots in each layer all the same, and says so."""

    def attend(
        self,
        batch: ForwardBatch,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
    ) -> torch.Tensor:
        """The plant: a mapping that may have moved on."""
        if batch.mode is ForwardMode.EXTEND:
            metadata = self.metadata_for(batch)
            metadata.sliding.read.copy_(self._sliding(metadata.full.read))
        return super().attend(batch, layer, query, key, value)

    def layer_accesses(self, batch: ForwardBatch, layer: int) -> tuple[tuple[Access, ...], tuple[Access, ...]]:
        """One read more."""
        reads, writes = super().layer_accesses(batch, layer)
        if batch.mode is ForwardMode.EXTEND and self.kv.swa is not None:
            reads = (*reads, (self.kv.swa.full_to_swa, batch.read_pages))
        return reads, writes


class TranslatesUnsaid(TranslatesLive):
    """Doesn't say so."""

    def layer_accesses(self, batch: ForwardBatch, layer: int) -> tuple[tuple[Access, ...], tuple[Access, ...]]:
        """As if the snapshot were used."""
        return TRTLLMMHAAttnBackend.layer_accesses(self, batch, layer)


def _windowed(graph: str) -> Served:
    # Without a prefix cache, which would hold on to what leaves the window while a prompt is prefilled.
    return run(LONG, attention="trtllm_mha", window=WINDOW, chunk=24, graph=graph, prefix_cache=False)


@pytest.mark.parametrize("graph", ["full", "breakable", "off"])
def test_a_live_translation_behind_the_snapshot_is_caught(graph: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = _windowed(graph)
    assert {step.fence for step in sound.prefills} == {FenceKind.FINE}
    assert hazards_of(sound) == set()
    monkeypatch.setitem(LEAVES, "trtllm_mha", TranslatesLive)
    seen = hazards_of(_windowed(graph))
    assert seen
    assert {(one.kind, one.buffer) for one in seen} == {("WAR", "full_to_swa")}
    assert {one.first.split("/")[-1] for one in seen} == {"extend_layer"}
    # Results of the step before, which unmap what has left the window, or the preparation of the next.
    assert {(one.second, one.apart) for one in seen} <= {
        ("evict_swa", -1),
        ("map_full_to_swa", -1),
        ("map_full_to_swa", NEXT),
        ("evict_swa", NEXT),
    }
    assert ("evict_swa", -1) in {(one.second, one.apart) for one in seen}


def test_one_that_is_not_declared_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LEAVES, "trtllm_mha", TranslatesUnsaid)
    with pytest.raises(UndeclaredAccessError, match="'extend_layer' touched 'full_to_swa' without declaring it"):
        _windowed("off")


class SmallSnapshots(DeepSeekV4AttnBackend):
    """Snapshots only extends of a few pages."""

    def __init__(self, device: DeviceModule, requests: ReqToTokenPool, kv: KVStore, **named: object) -> None:
        super().__init__(device, requests, kv, **named, snapshot_pages=8)  # type: ignore[arg-type]


class StoresTheFlag(SmallSnapshots):
    """Remembers that a snapshot was taken, not of what."""

    taken = False

    def launch_snapshot(self, batch: ForwardBatch) -> None:
        """Set the flag; nobody clears it."""
        super().launch_snapshot(batch)
        self.taken = True

    def has_extend_snapshot(self, batch: ForwardBatch) -> bool:  # noqa: ARG002 - the plant
        """Trust the flag."""
        return self.taken


def test_a_flag_that_another_batch_stored_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def serve() -> Served:
        return run([prompt for prompt in SOME if len(prompt.tokens) < 8] + LONG, attention="deepseek_v4", max_running=2)

    monkeypatch.setitem(LEAVES, "deepseek_v4", SmallSnapshots)
    sound = serve()
    assert {step.reason for step in sound.prefills} == {None, FallbackReason.SNAPSHOT_MISSING}
    assert hazards_of(sound) == set()
    monkeypatch.setitem(LEAVES, "deepseek_v4", StoresTheFlag)
    planted = serve()
    assert {step.reason for step in planted.prefills} == {None}
    check_torn_table(hazards_of(planted), {"extend_layer"})
