"""R4 in runs: whatever is combined, no phase is resolved earlier than its backend declares."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_fence.attention.declarations import WRAPPED
from sglang_fence.attention.registry import LEAVES, parse_spec
from sglang_fence.contract import FenceKind, SharedReadEnds
from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.fence.events import Marker
from sglang_fence.fence.publication import NO_MARKER
from tests.speculative.serving import ALGORITHMS, Prompt, check_sound, serve

if TYPE_CHECKING:
    from sglang_fence.device.protocol import DeviceModule
    from sglang_fence.observe.record import Phase

SPECS = (*LEAVES, *WRAPPED)
GRAPHS = ("full", "breakable", "off")
WANTED = [Prompt(tuple(range(start, start + 5 + start)), 4) for start in (1, 4, 9)]

MARKERS = ("planted", "no external events", "the first record fails", "some graphs have none")


def _check(phase: Phase, *, markers: str, graph: str) -> None:
    assert phase.resolved >= phase.declared
    downgraded = phase.declared is SharedReadEnds.IN_REPLAY and phase.resolved is SharedReadEnds.POST_REPLAY
    assert downgraded is (phase.downgrade == NO_MARKER)
    assert downgraded or phase.resolved is phase.declared
    if graph == "off" or markers in {"no external events", "the first record fails"}:
        assert phase.resolved is not SharedReadEnds.IN_REPLAY
    elif markers == "planted":
        assert not downgraded


def _fail_records(monkeypatch: pytest.MonkeyPatch, every: int) -> None:
    """Let each ``every``-th capture go without its marker."""
    plant, count = Marker.plant, [0]

    def failing(device: DeviceModule) -> Marker | None:
        if not device.is_current_stream_capturing():
            return None
        count[0] += 1
        return None if count[0] % every == 0 else plant(device)

    monkeypatch.setattr(Marker, "plant", failing)


@settings(deadline=None, max_examples=60)
@given(
    spec=st.sampled_from(SPECS),
    algorithm=st.sampled_from(("none", *ALGORITHMS)),
    graph=st.sampled_from(GRAPHS),
    markers=st.sampled_from(MARKERS),
    window=st.sampled_from((None, 8)),
)
def test_what_is_resolved_is_never_earlier_than_declared(
    spec: str,
    algorithm: str,
    graph: str,
    markers: str,
    window: int | None,
) -> None:
    if parse_spec(spec).keeps_state:
        algorithm = "none"
    with pytest.MonkeyPatch.context() as monkeypatch:
        if markers == "the first record fails":
            _fail_records(monkeypatch, 1)
        elif markers == "some graphs have none":
            _fail_records(monkeypatch, 2)
        served = serve(
            WANTED,
            device=SimulatedDevice(external_events=markers != "no external events"),
            attention=spec,
            speculative=algorithm,
            graph=graph,
            window=window,
            max_running=2,
            chunk=16,
            page_size=4,
            context_len=32,
            draft_tokens=2,
            fence="fine",
        )
    check_sound(served)
    for step in served.steps:
        assert step.phases
        for phase in step.phases:
            _check(phase, markers=markers, graph=graph)
        if step.fence is FenceKind.FINE:
            assert step.resolved is not SharedReadEnds.UNKNOWN
