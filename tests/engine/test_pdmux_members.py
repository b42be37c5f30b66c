"""R2 and R9 under PD multiplexing: the replaying stream's member answers, with a marker of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sglang_fence.attention.native import NativeAttnBackend
from sglang_fence.runners.multiplexed_decode import MultiplexedDecodeRunner
from sglang_fence.runners.stream_groups import ALONE, BESIDE_PREFILL
from tests.engine.pdmux_members import Early, differing_members
from tests.engine.pdmux_serving import serve, varied

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sglang_fence.engine.engine import Engine
    from sglang_fence.fence.events import Marker
    from tests.engine.pdmux_serving import Prompt


def markers_of(engine: Engine, group: int) -> list[Marker | None]:
    assert isinstance(engine.decode, MultiplexedDecodeRunner)
    return [graph.in_graph_metadata_prep_done for graph, _ in engine.decode._graphs_of[group].values()]


@pytest.mark.parametrize("graph", ["full", "breakable", "off"])
@pytest.mark.parametrize("early", [ALONE, BESIDE_PREFILL])
def test_the_resolved_end_is_the_replaying_members(
    early: int,
    graph: str,
    monkeypatch: pytest.MonkeyPatch,
    expected: Callable[[Sequence[Prompt]], list[list[int]]],
) -> None:
    differing_members(monkeypatch, early)
    run = serve(varied(), graph=graph)
    by_backend = {backend: one for (mode, backend), one in run.summary.modes.items() if mode == "decode"}
    late = "POST_REPLAY" if graph == "off" else "IN_REPLAY"
    streams = ("decode_alone", "decode_beside_prefill")
    for name, declared, resolved, stream in (
        (Early.name, "PRE_REPLAY", "PRE_REPLAY", streams[early]),
        (NativeAttnBackend.name, "IN_REPLAY", late, streams[1 - early]),
    ):
        one, steps = by_backend[name], len(run.steps_on(stream))
        assert steps
        assert (dict(one.declared), dict(one.resolved)) == ({declared: steps}, {resolved: steps})
    assert run.hazards == []
    assert run.outputs == expected(varied())


@pytest.mark.parametrize("graph", ["full", "breakable"])
def test_a_marker_belongs_to_the_graph_of_one_stream(graph: str) -> None:
    engine = serve(varied()[:2], graph=graph).engine
    alone, beside = markers_of(engine, ALONE), markers_of(engine, BESIDE_PREFILL)
    assert len(alone) == len(beside) > 1
    markers = [*alone, *beside]
    assert None not in markers
    assert len({id(marker) for marker in markers}) == len(markers)
    assert len({id(marker.event) for marker in markers if marker is not None}) == len(markers)


def test_graphs_of_the_two_streams_share_no_static_tensor() -> None:
    engine = serve(varied()[:2]).engine
    assert isinstance(engine.decode, MultiplexedDecodeRunner)
    alone, beside = engine.decode._graphs_of
    assert alone.keys() == beside.keys()
    for size in alone:
        one, other = alone[size][1], beside[size][1]
        assert one.tokens.data_ptr() != other.tokens.data_ptr()
        assert set(one.metadata).isdisjoint(other.metadata)
