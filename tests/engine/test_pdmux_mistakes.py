"""Mistakes that PD multiplexing invites, each planted on purpose, and what the checker says of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sglang_fence.engine.pdmux import PDMuxScheduler
from sglang_fence.runners.multiplexed_decode import MultiplexedDecodeRunner
from sglang_fence.runners.stream_groups import ALONE, BESIDE_PREFILL
from tests.engine.pdmux_members import differing_members
from tests.engine.pdmux_serving import handing_over, serve, varied

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sglang_fence.attention.base import AttentionBackend
    from sglang_fence.attention.batch import ForwardBatch
    from sglang_fence.contract import ForwardMode, SharedReadEnds
    from sglang_fence.device.protocol import Stream
    from sglang_fence.device.simulated.accesses import Hazard
    from sglang_fence.engine.footprint import Footprint
    from sglang_fence.fence.events import Marker
    from sglang_fence.graphs.parts import CapturedForward

STREAMS = ("decode_alone", "decode_beside_prefill")


def kernel(label: str) -> str:
    """Return the kernel in a report's label."""
    return label.rsplit("/", 1)[-1].split("#", 1)[0]


class AsksTheOther(MultiplexedDecodeRunner):
    """Resolves with the member of the stream that doesn't replay."""

    def _resolve_shared_read_ends(
        self, backend: AttentionBackend, mode: ForwardMode, marker: Marker | None
    ) -> SharedReadEnds:
        own = self._groups.index
        self._groups.index = 1 - own
        other = self._replay_attn_backend()
        self._groups.index = own
        assert other is not backend
        return super()._resolve_shared_read_ends(other, mode, marker)


@pytest.mark.parametrize("early", [ALONE, BESIDE_PREFILL])
def test_resolution_asked_of_the_wrong_member(early: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The late member's gather, in its graph, is given the early member's end: before the replay."""
    differing_members(monkeypatch, early)
    monkeypatch.setattr("sglang_fence.engine.engine.MultiplexedDecodeRunner", AsksTheOther)
    run = serve(varied(), attention="trtllm_mha")
    late = STREAMS[1 - early]
    assert run.hazards
    assert_gathers_race(run.hazards, late, run.steps_on(late))


class SharesMarkers(MultiplexedDecodeRunner):
    """Gives the second stream's graphs the markers of the first's, which no node of theirs records."""

    _size = 0

    def _capture_one(self, size: int) -> tuple[CapturedForward, ForwardBatch]:
        self._size = size
        return super()._capture_one(size)

    def _record_in_graph_metadata_prep_done(self) -> None:
        if self._groups.index == ALONE:
            super()._record_in_graph_metadata_prep_done()
        elif self._runner.device.is_current_stream_capturing():
            self._planted = self._graphs_of[ALONE][self._size][0].in_graph_metadata_prep_done


@pytest.mark.parametrize("graph", ["full", "breakable"])
def test_a_marker_shared_by_the_graphs_of_two_streams(graph: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sglang_fence.engine.engine.MultiplexedDecodeRunner", SharesMarkers)
    run = serve(varied(), attention="trtllm_mha", graph=graph)
    assert run.hazards
    assert_gathers_race(run.hazards, STREAMS[BESIDE_PREFILL], run.steps_on(STREAMS[BESIDE_PREFILL]))


def assert_gathers_race(hazards: Sequence[Hazard], stream: str, steps: set[int]) -> None:
    """Check that all that races is a gather of ``stream`` with a later write of the schedule stream."""
    for hazard in hazards:
        assert (hazard.kind, hazard.buffer) == ("WAR", "req_to_token")
        assert kernel(hazard.first) == "gather_page_table"
        assert f"@{stream}" in hazard.first
        assert hazard.first_step in steps
        assert kernel(hazard.second) in {"assign_req_to_token", "rewrite_req_to_token"}
        assert hazard.missing.startswith(f"no event recorded on '{stream}' after {hazard.first} is waited for")
        assert "on 'schedule'" in hazard.missing


def forget_waits(monkeypatch: pytest.MonkeyPatch, forgets: Callable[[str], bool]) -> None:
    """Leave the cross-stream waits out of launches on streams that ``forgets`` is true of."""
    original = PDMuxScheduler._order

    def order(self: PDMuxScheduler, stream: Stream, footprint: Footprint) -> None:
        if not forgets(stream.name):
            original(self, stream, footprint)

    monkeypatch.setattr(PDMuxScheduler, "_order", order)


def test_decodes_that_wait_for_no_other_stream(
    monkeypatch: pytest.MonkeyPatch, expected: Callable[..., list[list[int]]]
) -> None:
    """Who joins decode reads keys, values and a first token that its prefill hasn't written yet; tokens go wrong."""
    forget_waits(monkeypatch, lambda stream: stream != "prefill")
    run = serve(varied(), attention="trtllm_mha")
    found = {(hazard.kind, hazard.buffer, kernel(hazard.first), kernel(hazard.second)) for hazard in run.hazards}
    assert ("RAW", "kv_cache", "extend_layer", "layer") in found
    assert ("RAW", "relay", "sample", "load_batch") in found
    decodes = run.steps_on(STREAMS[0]) | run.steps_on(STREAMS[1])
    assert {hazard.second_step for hazard in run.hazards} <= decodes
    joins = [hazard for hazard in run.hazards if kernel(hazard.first) == "extend_layer"]
    assert {hazard.first_step for hazard in joins} <= run.steps_on("prefill")
    assert run.outputs != expected(varied())


@pytest.mark.parametrize(("window", "buffer"), [(None, "kv_cache"), (32, "swa_kv_cache")])
def test_a_prefill_that_takes_pages_over_from_a_dead_lane_in_flight(
    window: int | None,
    buffer: str,
    monkeypatch: pytest.MonkeyPatch,
    generate: Callable[[Sequence[int], int], list[int]],
) -> None:
    forget_waits(monkeypatch, lambda stream: stream == "prefill")
    run = serve(handing_over(generate), attention="trtllm_mha", max_running=2, window=window, prefix_cache=False)
    found = {(hazard.kind, hazard.buffer, kernel(hazard.first), kernel(hazard.second)) for hazard in run.hazards}
    assert ("WAW", buffer, "layer", "extend_layer") in found
    assert ("WAW", "relay", "sample", "sample") in found
    for hazard in run.hazards:
        assert hazard.second_step in run.steps_on("prefill")
        assert hazard.first_step in run.steps_on(STREAMS[0]) | run.steps_on(STREAMS[1])
        assert hazard.missing.endswith(f"is waited for on 'prefill' before {hazard.second}")
