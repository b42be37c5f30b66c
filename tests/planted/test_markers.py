"""Planted: markers that stand in the wrong place."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import pytest

from sglang_fence.attention.native import NativeAttnBackend
from sglang_fence.attention.registry import LEAVES
from sglang_fence.contract import SharedReadEnds
from sglang_fence.fence.events import Marker
from sglang_fence.graphs.full import FullGraph
from sglang_fence.runners.graph_runner import GraphRunner
from tests.planted.planting import check_torn_table, hazards_of, run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sglang_fence.attention.batch import ForwardBatch
    from sglang_fence.device.protocol import DeviceModule
    from sglang_fence.graphs.parts import Part


class LendsAnothersMarker(FullGraph):
    """A graph that was captured without a marker hands out that of the graph before it."""

    latest: ClassVar[Marker | None] = None

    def __init__(
        self, device: DeviceModule, name: str, parts: Sequence[Part], planted: Callable[[], Marker | None]
    ) -> None:
        super().__init__(device, name, parts, planted)
        if self.in_graph_metadata_prep_done is None:
            self.in_graph_metadata_prep_done = LendsAnothersMarker.latest
        LendsAnothersMarker.latest = self.in_graph_metadata_prep_done


@pytest.fixture
def _second_graph_has_no_marker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the first record fail, as it may (R9), in every second capture: those of an engine are four."""
    plant, count = Marker.plant, [0]

    def failing(device: DeviceModule) -> Marker | None:
        if not device.is_current_stream_capturing():
            return None
        count[0] += 1
        return None if count[0] % 2 == 0 else plant(device)

    monkeypatch.setattr(Marker, "plant", failing)


@pytest.mark.usefixtures("_second_graph_has_no_marker")
def test_a_marker_of_another_graph_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = run(max_running=8)
    assert hazards_of(sound) == set()
    decodes = [step for step in sound.steps if step.mode.is_decode()]
    assert {step.resolved for step in decodes} == {SharedReadEnds.IN_REPLAY, SharedReadEnds.POST_REPLAY}
    assert {phase.downgrade for step in decodes for phase in step.phases} == {None, "no_marker"}
    monkeypatch.setattr(LendsAnothersMarker, "latest", None)
    monkeypatch.setattr("sglang_fence.runners.graph_runner.FullGraph", LendsAnothersMarker)
    planted = run(max_running=8)
    assert {step.resolved for step in planted.steps if step.mode.is_decode()} == {SharedReadEnds.IN_REPLAY}
    check_torn_table(hazards_of(planted), {"decode/gather_page_table"})
    # The graphs that have a marker of their own are sound all the same.
    torn = {hazard.first.split("[")[0] for hazard in planted.device.hazards}
    assert torn <= {"decode_bs4", "decode_bs1"}


class ForksItsMetadata(NativeAttnBackend):
    """Gathers on a side stream, which somebody has to join."""

    def init_forward_metadata_in_graph(self, batch: ForwardBatch) -> None:
        """Fork, gather."""
        if not batch.width:
            super().init_forward_metadata_in_graph(batch)
            return
        main = self.device.current_stream()
        if not hasattr(self, "side"):
            self.side = self.device.Stream("side")
        self.side.wait_stream(main)
        with self.device.stream(self.side):
            super().init_forward_metadata_in_graph(batch)

    def join(self) -> None:
        """Let the current stream wait for the gather."""
        self.device.current_stream().wait_stream(self.side)


@pytest.mark.parametrize("graph", ["full", "breakable"])
@pytest.mark.parametrize("algorithm", ["none", "dflash"])
def test_a_marker_before_the_join_is_caught(algorithm: str, graph: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LEAVES, "native", ForksItsMetadata)
    plant = GraphRunner._record_in_graph_metadata_prep_done

    def join_then_plant(self: GraphRunner) -> None:
        _join(self)
        plant(self)

    def plant_then_join(self: GraphRunner) -> None:
        plant(self)
        _join(self)

    monkeypatch.setattr(GraphRunner, "_record_in_graph_metadata_prep_done", join_then_plant)
    assert hazards_of(run(speculative=algorithm, graph=graph)) == set()
    monkeypatch.setattr(GraphRunner, "_record_in_graph_metadata_prep_done", plant_then_join)
    phase = "decode" if algorithm == "none" else "target_verify"
    segment = "" if graph == "full" else ".0"
    check_torn_table(
        hazards_of(run(speculative=algorithm, graph=graph)),
        {f"{phase}{segment}/gather_page_table"},
    )


def _join(runner: GraphRunner) -> None:
    backend = runner._replay_attn_backend()
    assert isinstance(backend, ForksItsMetadata)
    backend.join()
