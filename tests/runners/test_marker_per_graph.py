"""R4 and R9: the marker is looked up per graph; a graph captured without one never hands out another's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sglang_fence.contract import SharedReadEnds
from sglang_fence.fence.events import Marker

if TYPE_CHECKING:
    from sglang_fence.device.protocol import DeviceModule
    from tests.runners.conftest import MakeRig

SIZES = (4, 2, 1)
"""In the order of their captures."""


@pytest.mark.parametrize("graph", ["full", "breakable"])
@pytest.mark.parametrize("without", SIZES)
def test_a_graph_without_a_marker_publishes_post_replay_and_the_others_their_own(
    without: int,
    graph: str,
    make_rig: MakeRig,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planted: list[Marker | None] = []
    plant = Marker.plant

    def sometimes(device: DeviceModule) -> Marker | None:
        if not device.is_current_stream_capturing():
            return None
        marker = None if SIZES[len(planted)] == without else plant(device)
        planted.append(marker)
        return marker

    monkeypatch.setattr(Marker, "plant", sometimes)
    rig = make_rig(graph=graph)
    assert len(planted) == len(SIZES)
    for lines in (*SIZES, *reversed(SIZES)):
        done = rig.run_decode(lines)
        marker = planted[SIZES.index(lines)]
        if marker is None:
            assert done.ends is SharedReadEnds.POST_REPLAY
            assert done.event not in [other.event for other in planted if other is not None]
        else:
            assert (done.ends, done.event) == (SharedReadEnds.IN_REPLAY, marker.event)
        rig.rewrite(done)
    assert rig.device.hazards == []
    assert [late for _, _, late in rig.probe.seen].count("no_marker") == 2


def test_capturing_again_replaces_graphs_and_markers_together(make_rig: MakeRig) -> None:
    rig = make_rig()
    old = {rig.run_decode(lines).event for lines in SIZES}
    rig.device.synchronize()
    rig.capture()
    new = {rig.run_decode(lines).event for lines in SIZES}
    assert len(old) == len(new) == len(SIZES)
    assert not old & new
