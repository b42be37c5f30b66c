"""R8: prefill publishes only where all it reads was snapshotted for this very batch and nobody reads after it."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from unittest.mock import create_autospec

import pytest
import torch

from sglang_fence.attention.base import AttentionBackend
from sglang_fence.attention.batch import ForwardBatch
from sglang_fence.attention.trtllm_mha import TRTLLMMHAAttnBackend
from sglang_fence.contract import FallbackReason, ForwardMode, SharedReadEnds
from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.environ import Switches
from sglang_fence.fence.barrier import FencePolicy
from sglang_fence.memory.kv_pool import KVLayout, PagedKV
from sglang_fence.memory.request_pool import ReqToTokenPool
from sglang_fence.runners.model_runner import FenceSettings
from sglang_fence.runners.prefill_publication import prefill_gate

if TYPE_CHECKING:
    from tests.fence.conftest import Serve

PRE = SharedReadEnds.PRE_REPLAY


def new_batch(mode: ForwardMode = ForwardMode.EXTEND) -> ForwardBatch:
    zeros = torch.zeros(2, dtype=torch.int64)
    return ForwardBatch(
        mode,
        zeros[:1],
        zeros[:1] + 2,
        zeros,
        torch.arange(2),
        token_lines=zeros,
        last_tokens=zeros[:1] + 1,
        query_lens=(2,),
        kv_lens=(2,),
    )


@dataclass(frozen=True)
class Case:
    """Everything the gate looks at, by default all open."""

    forced: bool = False
    ends: SharedReadEnds = PRE
    mode: ForwardMode = ForwardMode.EXTEND
    switch: bool = True
    snapshot: bool = True
    reader_follows: bool = False
    host_cache: bool = False

    def ask(self) -> FallbackReason | None:
        settings = FenceSettings(
            Switches(enable_prefill_war_read_done=self.switch),
            FencePolicy(enabled=True, forced_coarse=self.forced, why="test"),
            spec_reader_follows_prefill=self.reader_follows,
            host_cache=self.host_cache,
        )
        backend = create_autospec(AttentionBackend, instance=True)
        backend.has_extend_snapshot.return_value = self.snapshot
        return prefill_gate(settings, backend, new_batch(self.mode), self.ends)


OPEN = Case()
UNSUPPORTED = FallbackReason.MODE_UNSUPPORTED


def test_with_every_gate_open_it_publishes() -> None:
    assert OPEN.ask() is None


CLOSED = [
    (replace(OPEN, forced=True), FallbackReason.FORCED),
    (replace(OPEN, ends=SharedReadEnds.UNKNOWN), FallbackReason.BACKEND_UNKNOWN),
    (replace(OPEN, ends=SharedReadEnds.IN_REPLAY), UNSUPPORTED),
    (replace(OPEN, ends=SharedReadEnds.POST_REPLAY), UNSUPPORTED),
    *[(replace(OPEN, mode=mode), UNSUPPORTED) for mode in ForwardMode if mode is not ForwardMode.EXTEND],
    (replace(OPEN, switch=False), FallbackReason.PREFILL_DISABLED),
    (replace(OPEN, snapshot=False), FallbackReason.SNAPSHOT_MISSING),
    (replace(OPEN, reader_follows=True), FallbackReason.SPEC_READER_FOLLOWS),
    (replace(OPEN, host_cache=True), FallbackReason.HOST_CACHE),
]


@pytest.mark.parametrize(("case", "reason"), CLOSED)
def test_each_gate_has_its_reason(case: Case, reason: FallbackReason) -> None:
    assert case.ask() is reason


def test_the_reasons_are_asked_in_order_and_what_the_backend_cannot_do_comes_before_what_is_off() -> None:
    case = Case(
        forced=True,
        ends=SharedReadEnds.UNKNOWN,
        mode=ForwardMode.MIXED,
        switch=False,
        snapshot=False,
        reader_follows=True,
        host_cache=True,
    )
    found = [case.ask()]
    for gate in ("forced", "ends", "mode", "switch", "snapshot", "reader_follows", "host_cache"):
        case = replace(case, **{gate: getattr(OPEN, gate)})
        found.append(case.ask())
    assert found == [
        FallbackReason.FORCED,
        FallbackReason.BACKEND_UNKNOWN,
        FallbackReason.MODE_UNSUPPORTED,
        FallbackReason.PREFILL_DISABLED,
        FallbackReason.SNAPSHOT_MISSING,
        FallbackReason.SPEC_READER_FOLLOWS,
        FallbackReason.HOST_CACHE,
        None,
    ]


def test_the_snapshot_is_asked_of_each_batch_anew() -> None:
    settings = FenceSettings(Switches(), FencePolicy(enabled=True, forced_coarse=False, why="test"))
    backend = create_autospec(AttentionBackend, instance=True)
    backend.has_extend_snapshot.side_effect = [True, False]
    one, two = new_batch(), new_batch()
    assert prefill_gate(settings, backend, one, PRE) is None
    assert prefill_gate(settings, backend, two, PRE) is FallbackReason.SNAPSHOT_MISSING
    assert [call.args for call in backend.has_extend_snapshot.call_args_list] == [(one,), (two,)]


def test_no_flag_of_the_backend_says_that_a_snapshot_was_built() -> None:
    device = SimulatedDevice()
    requests = ReqToTokenPool(device, max_running=2, context_len=8)
    layout = KVLayout((None,), 1, 2, torch.float32)
    kv = PagedKV(device, layout, pages=4, page_size=2, context_len=8, prefix_cache=False)
    backend = TRTLLMMHAAttnBackend(device, requests, kv)
    before = dict(vars(backend))
    prepared, other = new_batch(), new_batch()
    backend.init_forward_metadata_out_graph(prepared)
    assert backend.has_extend_snapshot(prepared)
    assert not backend.has_extend_snapshot(other)
    assert not backend.has_extend_snapshot(new_batch(ForwardMode.MIXED))
    assert vars(backend) == before


@pytest.mark.parametrize("graph", ["full", "off"])
def test_that_it_engages_is_logged_once_for_a_backend(
    graph: str,
    serve: Serve,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "sglang_fence.runners.model_runner")
    extends = serve(graph=graph, attention="trtllm_mha", chunk=16).summary.by_mode()["extend"]
    assert extends.fence == {"fine": extends.steps}
    assert extends.steps > 1
    said = [record.getMessage() for record in caplog.records if "prefill publishes" in record.getMessage()]
    assert said == ["prefill publishes its shared read end at PRE_REPLAY for attention backend trtllm_mha"]


def test_a_prefill_that_may_not_publish_logs_nothing(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sglang_fence.runners.model_runner")
    run = serve(attention="trtllm_mha", switches=Switches(enable_prefill_war_read_done=False))
    extends = run.summary.by_mode()["extend"]
    assert extends.reasons == {"prefill_disabled": extends.steps}
    assert not caplog.records


def test_a_backend_that_reads_live_tables_is_unknown_in_every_extend(serve: Serve) -> None:
    extends = serve(attention="native").summary.by_mode()["extend"]
    assert extends.reasons == {"backend_unknown": extends.steps}
