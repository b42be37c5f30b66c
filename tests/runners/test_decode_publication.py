"""R4 and R5 in ``DecodeRunner.execute``: each resolved end is published at its moment, with its event."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import pytest

from sglang_fence.attention.native import NativeAttnBackend
from sglang_fence.contract import FallbackReason, FenceKind, ForwardMode, SharedReadEnds
from sglang_fence.device.kernels import KERNELS
from sglang_fence.device.simulated.streams import SimulatedEvent

if TYPE_CHECKING:
    from sglang_fence.attention.batch import ForwardBatch
    from sglang_fence.fence.publication import ReadDone
    from tests.runners.conftest import MakeRig, Rig

PRE, IN, POST, UNKNOWN = SharedReadEnds
GRAPHS = ("full", "breakable", "off")


class ReadsInGraph(NativeAttnBackend):
    """Gathers inside the graph, as the base does."""

    declared: ClassVar[SharedReadEnds] = IN

    def shared_read_ends(self, mode: ForwardMode) -> SharedReadEnds:
        assert mode is ForwardMode.DECODE
        return self.declared


class ReadsBefore(ReadsInGraph):
    """Gathers before the replay."""

    def init_forward_metadata_out_graph(self, batch: ForwardBatch, in_capture: bool = False) -> None:  # noqa: FBT001, FBT002 - the contract's signature
        super().init_forward_metadata_out_graph(batch, in_capture)
        self.launch_gather("snapshot_metadata", batch)

    def init_forward_metadata_in_graph(self, batch: ForwardBatch) -> None:
        pass


class ReadsThroughout(ReadsInGraph):
    """Gathers anew in every layer."""

    def reads_live(self, batch: ForwardBatch) -> bool:
        return batch.mode is ForwardMode.DECODE


def declaring(ends: SharedReadEnds, base: type[ReadsInGraph] = ReadsInGraph) -> type[ReadsInGraph]:
    return type(f"{base.__name__}Says{ends.name}", (base,), {"declared": ends})


PREPARED = ["load_batch", "out_graph_metadata"]
ORDER = {
    PRE: [*PREPARED, "record", "publish PRE_REPLAY", "replay decode_bs2"],
    IN: [*PREPARED, "replay decode_bs2", "publish IN_REPLAY"],
    POST: [*PREPARED, "replay decode_bs2", "record", "publish POST_REPLAY"],
    UNKNOWN: [*PREPARED, "replay decode_bs2", "publish UNKNOWN"],
}


@pytest.mark.parametrize("ends", SharedReadEnds)
def test_load_prepare_publish_early_replay_publish_late(ends: SharedReadEnds, make_rig: MakeRig) -> None:
    rig = make_rig(declaring(ends))
    rig.run_decode(2)
    assert rig.log == ORDER[ends]


@pytest.mark.parametrize("ends", SharedReadEnds)
@pytest.mark.parametrize("graph", GRAPHS)
def test_an_early_record_comes_before_any_replayed_work_and_a_late_one_behind_all(
    ends: SharedReadEnds,
    graph: str,
    make_rig: MakeRig,
) -> None:
    rig = make_rig(declaring(ends), graph)
    resolved = POST if (ends, graph) == (IN, "off") else ends
    rig.run_decode(2)
    published = rig.log.index(f"publish {resolved.name}")
    forward = rig.log[:published], rig.log[published + 1 :]
    work = [[entry for entry in part if entry not in {*PREPARED, "record"}] for part in forward]
    if resolved is PRE:
        assert (work[0], rig.log[published - 1]) == ([], "record")
        assert work[1]
    else:
        assert work[0]
        assert forward[1] == []
        assert rig.log.count("record") == (resolved is POST)
        assert (rig.log[-2] == "record") == (resolved is POST)


@pytest.mark.parametrize("ends", SharedReadEnds)
@pytest.mark.parametrize("graph", GRAPHS)
def test_the_event_is_reached_exactly_where_the_reads_end(ends: SharedReadEnds, graph: str, make_rig: MakeRig) -> None:
    rig = make_rig(declaring(ends), graph)
    rig.device.synchronize()
    before = rig.device.now_us
    done = rig.run_decode(2)
    at = moment(done)
    end = rig.forward.lane.ready / 1e6
    upload = KERNELS["upload_batch"].us
    prepared = before + upload + KERNELS["load_batch"].us + KERNELS["out_graph_metadata"].us
    assert (done.step, done.mode) == (0, ForwardMode.DECODE)
    if ends is UNKNOWN:
        assert (done.ends, done.event, done.reason) == (UNKNOWN, None, FallbackReason.BACKEND_UNKNOWN)
    elif ends is PRE:
        assert (done.ends, at) == (PRE, prepared)
    elif ends is IN and graph != "off":
        gathered = max(prepared, before + 15) + KERNELS["gather_page_table"].us  # the launch costs the host 15 µs
        assert (done.ends, at) == (IN, gathered)
    else:
        assert (done.ends, at) == (POST, end)


def moment(done: ReadDone) -> float | None:
    if done.event is None:
        return None
    assert isinstance(done.event, SimulatedEvent)
    assert done.event.bound is not None
    return done.event.bound.time / 1e6


@pytest.mark.parametrize("graph", ["full", "breakable"])
def test_in_replay_publishes_the_marker_of_the_graph_that_was_replayed(graph: str, make_rig: MakeRig) -> None:
    rig = make_rig(graph=graph)
    for lines, size in ((1, 1), (2, 2), (3, 4), (1, 1)):
        marker = rig.decode._graphs[size][0].in_graph_metadata_prep_done
        assert marker is not None
        assert rig.run_decode(lines).event is marker.event
    assert rig.pool.lent == 0


@pytest.mark.parametrize("ends", SharedReadEnds)
def test_the_probe_hears_what_was_declared_what_resolved_and_why_later(ends: SharedReadEnds, make_rig: MakeRig) -> None:
    rig = make_rig(declaring(ends))
    rig.run_decode(1)
    assert rig.probe.seen == [(ends, ends, None)]
    eager = make_rig(declaring(ends), "off")
    eager.run_decode(1)
    assert eager.probe.seen == [(ends, POST if ends is IN else ends, "no_marker" if ends is IN else None)]


READERS = {PRE: ReadsBefore, IN: ReadsInGraph, POST: ReadsThroughout}


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("reads_end", READERS)
@pytest.mark.parametrize("declared", SharedReadEnds)
def test_a_declaration_that_is_too_early_races_and_one_that_is_not_does_not(
    declared: SharedReadEnds,
    reads_end: SharedReadEnds,
    graph: str,
    make_rig: MakeRig,
) -> None:
    rig = make_rig(declaring(declared, READERS[reads_end]), graph)
    done = rig.run_decode(2)
    rig.rewrite(done)
    # Without a graph there is no marker, and what is resolved is late enough for all.
    too_early = done.ends < reads_end
    assert bool(rig.device.hazards) == too_early
    assert {(hazard.kind, hazard.buffer) for hazard in rig.device.hazards} <= {("WAR", "req_to_token")}
    assert (declared < reads_end) == too_early or graph == "off"


def test_a_marker_that_its_replay_did_not_arm_is_unrecorded_and_coarse(make_rig: MakeRig) -> None:
    rig = make_rig()
    graph, _ = rig.decode._graphs[1]
    marker = graph.in_graph_metadata_prep_done
    assert marker is not None
    graph.replay = lambda: None  # type: ignore[method-assign]
    done = rig.run_decode(1)
    assert (done.ends, done.event, done.reason) == (UNKNOWN, None, FallbackReason.UNRECORDED)
    assert fenced(rig, done) == (FenceKind.COARSE, FallbackReason.UNRECORDED)


def fenced(rig: Rig, done: ReadDone) -> tuple[FenceKind, FallbackReason | None]:
    verdict = rig.barrier.apply(done.step, rig, rig.forward)
    return verdict.kind, verdict.reason
