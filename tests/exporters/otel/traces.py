"""Sampled steps to export: one that looks like a decode step, and a strategy for any that the probe could hand over."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from sglang_fence.catalogue import SPANS, Track
from sglang_fence.catalogue.spans import DOWNGRADE
from sglang_fence.contract import FallbackReason, FenceKind, ForwardMode, SharedReadEnds
from sglang_fence.observe.record import Phase
from sglang_fence.observe.trace import VIRTUAL_EPOCH_NS, SpanTimes, StepTrace

DECODE = Phase(ForwardMode.DECODE, "target", "Paged", SharedReadEnds.IN_REPLAY, SharedReadEnds.IN_REPLAY, None)
REQUEST = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
"""A ``traceparent``, the one of the specification."""

SPANS_BELOW = 9


def decode_step(step: int, **changes: Any) -> StepTrace:  # noqa: ANN401 - any field of the trace
    """Return a fine decode step of 300 µs, begun 1 ms after the one before it, with nine spans below it."""
    start = VIRTUAL_EPOCH_NS + step * 1_000_000

    def span(name: str, track: Track, begin_us: int, end_us: int, phase: int | None = None) -> SpanTimes:
        return SpanTimes(name, track, start + begin_us * 1000, start + end_us * 1000, phase)

    trace = StepTrace(
        step=step,
        mode=ForwardMode.DECODE,
        backend="Paged",
        batch_size=4,
        tokens=4,
        phases=(DECODE,),
        declared=SharedReadEnds.IN_REPLAY,
        resolved=SharedReadEnds.IN_REPLAY,
        downgrade=None,
        fence=FenceKind.FINE,
        reason=None,
        start_ns=start,
        end_ns=start + 300_000,
        spans=(
            span("schedule", Track.HOST, 0, 10),
            span("launch", Track.HOST, 10, 40, 0),
            span("publish", Track.HOST, 40, 42, 0),
            span("barrier", Track.HOST, 42, 50),
            span("process_results", Track.HOST, 50, 70),
            span("out_graph_metadata", Track.FORWARD, 20, 30, 0),
            span("in_graph_metadata", Track.FORWARD, 30, 60, 0),
            span("replay", Track.FORWARD, 30, 300, 0),
            span("barrier_wait", Track.SCHEDULE, 50, 60),
        ),
        slack_us=240.0,
        wait_us=10.0,
        forward_us=280.0,
        gap_us=7.0,
        gap_last="host",
        lost_slack_us=None,
        assumed=False,
        lost_us=None,
        released_ns=start + 60_000,
        bound_record=17,
        waited_for=None if step == 0 else step - 1,
        links=(),
        error_ns=1500,
    )
    return trace._replace(**changes)


_names = st.text("abcdefghijklmnopqrstuvwxyzABCXYZ_0123456789", min_size=1, max_size=20)
_downgrade = st.none() | st.sampled_from(DOWNGRADE.values or ("some_cause",))
_us = st.none() | st.floats(0.0, 1e9)
_count = st.integers(0, 2**31)
_moment = st.integers(VIRTUAL_EPOCH_NS, VIRTUAL_EPOCH_NS + 10**15)
_ends = st.sampled_from(SharedReadEnds)

_phases = st.builds(
    Phase,
    mode=st.sampled_from(ForwardMode),
    role=st.sampled_from(("target", "draft")),
    backend=_names,
    declared=_ends,
    resolved=_ends,
    downgrade=_downgrade,
)


@st.composite
def _span_times(draw: st.DrawFn, phases: int) -> SpanTimes:
    start = draw(_moment)
    return SpanTimes(
        name=draw(st.sampled_from([row.name for row in SPANS if row.track is not Track.STEP])),
        track=draw(st.sampled_from([track for track in Track if track is not Track.STEP])),
        start_ns=start,
        end_ns=start + draw(st.integers(0, 10**12)),
        phase=draw(st.none() | st.integers(0, phases - 1)) if phases else None,
        segment=draw(st.none() | st.integers(0, 100)),
    )


@st.composite
def step_traces(draw: st.DrawFn) -> StepTrace:
    """Draw any step: not one that makes sense, but each field anything that its type allows."""
    phases = draw(st.lists(_phases, max_size=3))
    start = draw(_moment)
    return StepTrace(
        step=draw(_count),
        mode=draw(st.sampled_from(ForwardMode)),
        backend=draw(_names),
        batch_size=draw(_count),
        tokens=draw(_count),
        phases=tuple(phases),
        declared=draw(_ends),
        resolved=draw(_ends),
        downgrade=draw(_downgrade),
        fence=draw(st.sampled_from(FenceKind)),
        reason=draw(st.none() | st.sampled_from(FallbackReason)),
        start_ns=start,
        end_ns=start + draw(st.integers(0, 10**12)),
        spans=tuple(draw(st.lists(_span_times(len(phases)), max_size=20))),
        slack_us=draw(_us),
        wait_us=draw(_us),
        forward_us=draw(_us),
        gap_us=draw(_us),
        gap_last=draw(st.none() | st.sampled_from(("fence", "host"))),
        lost_slack_us=draw(_us),
        assumed=draw(st.booleans()),
        lost_us=draw(_us),
        released_ns=draw(st.none() | _moment),
        bound_record=draw(st.none() | _count),
        waited_for=draw(st.none() | _count),
        links=tuple(draw(st.lists(st.just(REQUEST) | _names, max_size=4))),
        error_ns=draw(_count),
    )
