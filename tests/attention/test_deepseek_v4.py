"""DeepSeek V4: what it reads after the marker, and which extends have a snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from sglang_fence.attention.batch import ForwardBatch
from sglang_fence.attention.deepseek_v4 import DeepSeekV4AttnBackend
from sglang_fence.contract import ForwardMode, SharedReadEnds
from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.fence.events import Marker
from sglang_fence.graphs.breakable import BreakableGraph
from sglang_fence.graphs.full import FullGraph
from sglang_fence.graphs.parts import launch_all
from sglang_fence.memory.kv_pool import PagedKV
from sglang_fence.memory.request_pool import ReqToTokenPool, RowUpdates
from sglang_fence.models.loading import ModelOptions, load_model
from sglang_fence.runners.forward import ForwardKernels
from tests.attention.stores import point, tiny_store

if TYPE_CHECKING:
    from sglang_fence.device.protocol import Event
    from sglang_fence.device.simulated.accesses import Hazard

PAGE_SIZE = 16


def _verify(backend: DeepSeekV4AttnBackend) -> tuple[Event, Event]:
    """Replay a verification of two tokens as its backend wants it; return its marker and an event behind it all."""
    device = backend.device
    numbers = torch.tensor([18, 19])
    batch = ForwardBatch(
        ForwardMode.TARGET_VERIFY,
        req_rows=torch.tensor([1]),
        seq_lens=torch.tensor([20]),
        tokens=numbers,
        positions=numbers,
        width=2,
        static=True,
        lines=1,
        rows=(1,),
        pages=(1, 2),
    )
    planted: list[Marker] = []

    def plant() -> None:
        marker = Marker.plant(device)
        if marker is not None:
            planted.append(marker)

    backend.init_forward_metadata_out_graph(batch, in_capture=True)
    breakable = not backend.verifies_in_one_graph
    model = load_model(ModelOptions(context_len=32), device.torch_device)
    parts = ForwardKernels(device, model, backend, batch).parts(plant, breakable=breakable)
    launch_all(parts)
    device.synchronize()
    kind = BreakableGraph if breakable else FullGraph
    graph = kind(device, "verify", parts, lambda: planted[-1])
    graph.replay()
    behind = device.Event()
    behind.record()
    assert graph.in_graph_metadata_prep_done is not None
    return graph.in_graph_metadata_prep_done.event, behind


def _torn(*, dspark: bool, after: SharedReadEnds) -> list[Hazard]:
    """Rewrite the request's row behind the given end of a verification."""
    device = SimulatedDevice()
    model = load_model(ModelOptions(context_len=32), device.torch_device)
    requests = ReqToTokenPool(device, max_running=2, context_len=32)
    kv = PagedKV(device, model.kv_layout(), pages=8, page_size=PAGE_SIZE, context_len=32, prefix_cache=False)
    backend = DeepSeekV4AttnBackend(device, requests, kv, dspark=dspark)
    forward, schedule = device.Stream("forward"), device.Stream("schedule")
    with torch.inference_mode(), device.stream(forward):
        marker, behind = _verify(backend)
    with device.stream(schedule):
        schedule.wait_event(marker if after is SharedReadEnds.IN_REPLAY else behind)
        updates = RowUpdates()
        updates.add(1, 0, [64] * 20)
        requests.write("rewrite_req_to_token", updates)
    with torch.inference_mode():
        device.synchronize()
    return device.hazards


def test_a_breakable_verify_is_torn_behind_its_marker_and_so_declares_post_replay() -> None:
    torn = _torn(dspark=False, after=SharedReadEnds.IN_REPLAY)
    assert {(hazard.kind, hazard.buffer, hazard.rows) for hazard in torn} == {("WAR", "req_to_token", (1,))}
    assert all("regather_page_table" in hazard.first for hazard in torn)
    assert not _torn(dspark=False, after=SharedReadEnds.POST_REPLAY)


def test_under_dspark_it_is_one_graph_and_its_marker_is_late_enough() -> None:
    assert not _torn(dspark=True, after=SharedReadEnds.IN_REPLAY)


def _extend(pages: int, *, step: int = 7) -> ForwardBatch:
    numbers = torch.arange(4)
    return ForwardBatch(
        ForwardMode.EXTEND,
        req_rows=torch.tensor([1]),
        seq_lens=torch.tensor([4]),
        tokens=numbers,
        positions=numbers,
        token_lines=torch.zeros(4, dtype=torch.int64),
        step=step,
        lines=1,
        rows=(1,),
        pages=tuple(range(1, pages + 1)),
        query_lens=(4,),
        kv_lens=(4,),
    )


@pytest.mark.parametrize(("pages", "fits"), [(3, True), (4, False)])
def test_an_extend_has_a_snapshot_if_it_fits_the_budget(pages: int, fits: bool) -> None:  # noqa: FBT001 - parametrized
    device = SimulatedDevice()
    store = tiny_store(device)
    point(store, 1, [1], 4)
    backend = DeepSeekV4AttnBackend(*store, snapshot_pages=3)
    batch = _extend(pages)
    assert not backend.has_extend_snapshot(batch)
    backend.init_forward_metadata(batch)
    assert backend.has_extend_snapshot(batch) is fits
    reads, _ = backend.layer_accesses(batch, 0)
    assert (store.requests.req_to_token in [buffer for buffer, _ in reads]) is not fits
    assert not backend.has_extend_snapshot(_extend(pages)), "nothing is kept on the backend"


def test_a_snapshot_is_of_the_step_it_was_built_for() -> None:
    backend = DeepSeekV4AttnBackend(*tiny_store(SimulatedDevice()))
    batch = _extend(2)
    backend.init_forward_metadata_out_graph(batch)
    batch.step += 1
    assert not backend.has_extend_snapshot(batch)
    backend.init_forward_metadata_out_graph(batch)
    assert backend.has_extend_snapshot(batch)


def test_a_draft_extend_is_as_the_base_says() -> None:
    backend = DeepSeekV4AttnBackend(*tiny_store(SimulatedDevice()))
    batch = _extend(2)
    batch.mode = ForwardMode.DRAFT_EXTEND
    backend.init_forward_metadata(batch)
    assert backend.shared_read_ends(batch.mode) is SharedReadEnds.UNKNOWN
    assert not backend.has_extend_snapshot(batch)
    assert backend.reads_live(batch)
