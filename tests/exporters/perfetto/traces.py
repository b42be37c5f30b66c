"""Step traces made by hand: a steady overlap loop, and pieces to build others from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.catalogue import Track
from sglang_fence.contract import FallbackReason, FenceKind, ForwardMode, SharedReadEnds
from sglang_fence.observe.record import Phase
from sglang_fence.observe.trace import VIRTUAL_EPOCH_NS, SpanTimes, StepTrace

if TYPE_CHECKING:
    from collections.abc import Iterable

US = 1_000
PERIOD_US = 100
"""From one step of the steady loop to the next; a step takes 128 µs, so steps overlap."""


def at(us: float) -> int:
    """Return a time, in ns, ``us`` after the epoch of virtual time."""
    return VIRTUAL_EPOCH_NS + round(us * US)


def span(name: str, track: Track, start_us: float, end_us: float, **more: int) -> SpanTimes:
    return SpanTimes(name, track, at(start_us), at(end_us), **more)


def bare(step: int, start_us: float, end_us: float, spans: Iterable[SpanTimes] = ()) -> StepTrace:
    """Return a fine decode step without durations, to be changed by ``_replace``."""
    ends = SharedReadEnds.IN_REPLAY
    return StepTrace(
        step=step,
        mode=ForwardMode.DECODE,
        backend="NativeBackend",
        batch_size=4,
        tokens=4,
        phases=(Phase(ForwardMode.DECODE, "target", "NativeBackend", ends, ends, None),),
        declared=ends,
        resolved=ends,
        downgrade=None,
        fence=FenceKind.FINE,
        reason=None,
        start_ns=at(start_us),
        end_ns=at(end_us),
        spans=tuple(spans),
        slack_us=None,
        wait_us=None,
        forward_us=None,
        gap_us=None,
        gap_last=None,
        lost_slack_us=None,
        assumed=False,
        lost_us=None,
        released_ns=None,
        bound_record=None,
        waited_for=None,
        links=(),
        error_ns=0,
    )


def steady(step: int) -> StepTrace:
    """Return a step of a steady loop: its reads end at 55 µs, while the schedule stream waits from 48 to 56 µs."""
    t = step * PERIOD_US
    spans = (
        span("schedule", Track.HOST, t, t + 20),
        span("launch", Track.HOST, t + 20, t + 45, phase=0),
        span("publish", Track.HOST, t + 40, t + 44, phase=0),
        span("barrier", Track.HOST, t + 45, t + 50),
        span("process_results", Track.HOST, t + 50, t + 70),
        span("out_graph_metadata", Track.FORWARD, t + 30, t + 40, phase=0),
        span("replay", Track.FORWARD, t + 40, t + 128, phase=0),
        span("in_graph_metadata", Track.FORWARD, t + 40, t + 55, phase=0),
        span("segment", Track.FORWARD, t + 55, t + 128, segment=1),
        span("barrier_wait", Track.SCHEDULE, t + 48, t + 56),
    )
    return bare(step, t, t + 128, spans)._replace(
        slack_us=73.0,
        wait_us=8.0,
        forward_us=98.0,
        gap_us=2.0,
        gap_last="host",
        released_ns=at(t + 55),
        bound_record=100 + step,
        waited_for=step - 1 if step else None,
    )


def forced_coarse(step: int) -> StepTrace:
    """Return the same step behind a coarse fence, that cost the next one 30 µs."""
    fine = steady(step)
    t = step * PERIOD_US
    waits = span("barrier_wait", Track.SCHEDULE, t + 48, t + 128)
    return fine._replace(
        fence=FenceKind.COARSE,
        reason=FallbackReason.FORCED,
        spans=(*fine.spans[:-1], waits),
        slack_us=0.0,
        wait_us=80.0,
        lost_slack_us=73.0,
        lost_us=30.0,
        released_ns=at(t + 128),
        bound_record=None,
    )
