"""R8 in ``PrefillRunner.execute``: behind the snapshot, before anything else is launched; else the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sglang_fence.attention.native import NativeAttnBackend
from sglang_fence.attention.trtllm_mha import TRTLLMMHAAttnBackend
from sglang_fence.contract import FallbackReason, ForwardMode, SharedReadEnds
from sglang_fence.environ import Switches

if TYPE_CHECKING:
    from tests.runners.conftest import MakeRig

GRAPHS = ("full", "breakable", "off")


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("lines", [1, 2, 5])  # by a graph, by a graph, and eagerly
def test_a_snapshot_is_published_before_anything_else_is_launched(lines: int, graph: str, make_rig: MakeRig) -> None:
    rig = make_rig(TRTLLMMHAAttnBackend, graph)
    done = rig.run_extend(lines)
    assert (done.step, done.mode, done.ends) == (0, ForwardMode.EXTEND, SharedReadEnds.PRE_REPLAY)
    assert rig.log[:4] == ["load_batch", "snapshot_metadata", "record", "publish PRE_REPLAY"]
    assert len(rig.log) > 4
    rig.rewrite(done)
    assert rig.device.hazards == []


@pytest.mark.parametrize("graph", GRAPHS)
def test_a_backend_that_reads_live_tables_is_unknown_and_would_race_otherwise(graph: str, make_rig: MakeRig) -> None:
    rig = make_rig(NativeAttnBackend, graph)
    done = rig.run_extend(2)
    assert (done.ends, done.event, done.reason) == (SharedReadEnds.UNKNOWN, None, FallbackReason.BACKEND_UNKNOWN)
    rig.rewrite(done)
    assert rig.device.hazards == []


class ClaimsASnapshot(NativeAttnBackend):
    """Reads live tables and says otherwise."""

    def shared_read_ends(self, mode: ForwardMode) -> SharedReadEnds:
        return SharedReadEnds.PRE_REPLAY if mode is ForwardMode.EXTEND else super().shared_read_ends(mode)

    def has_extend_snapshot(self, batch: object) -> bool:
        return batch is not None


class ForgetsItsSnapshot(ClaimsASnapshot):
    """Declares PRE_REPLAY, and built nothing for the batch."""

    def has_extend_snapshot(self, batch: object) -> bool:
        return batch is None


@pytest.mark.parametrize("graph", GRAPHS)
def test_a_false_claim_is_caught_by_the_checker(graph: str, make_rig: MakeRig) -> None:
    rig = make_rig(ClaimsASnapshot, graph)
    done = rig.run_extend(2)
    assert done.ends is SharedReadEnds.PRE_REPLAY
    rig.rewrite(done)
    assert {hazard.kind for hazard in rig.device.hazards} == {"WAR"}
    assert {hazard.first.split("/")[-1].split("#")[0] for hazard in rig.device.hazards} == {"extend_layer"}


def test_a_missing_snapshot_is_coarse(make_rig: MakeRig) -> None:
    assert make_rig(ForgetsItsSnapshot).run_extend(2).reason is FallbackReason.SNAPSHOT_MISSING


def test_the_switch_closes_it(make_rig: MakeRig) -> None:
    rig = make_rig(TRTLLMMHAAttnBackend, switches=Switches(enable_prefill_war_read_done=False))
    assert rig.run_extend(2).reason is FallbackReason.PREFILL_DISABLED
