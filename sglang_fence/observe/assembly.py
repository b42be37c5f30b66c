"""From a finished record and its ranges to a :class:`~sglang_fence.observe.trace.StepTrace`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.catalogue.schema import Track
from sglang_fence.contract import FenceKind, SharedReadEnds
from sglang_fence.observe.marks import ON_HOST
from sglang_fence.observe.trace import SpanTimes, StepTrace

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sglang_fence.observe.clock import DeviceClock
    from sglang_fence.observe.durations import Moments
    from sglang_fence.observe.marks import Mark
    from sglang_fence.observe.record import StepRecord

_BEHIND_RESOLUTION = frozenset({"in_graph_metadata", "publish", "replay", "segment", "eager_segment"})
"""Ranges that begin behind the resolution of their phase; all others begin before it."""


def assemble(
    record: StepRecord,
    moments: Moments,
    marks: Iterable[Mark],
    clock: DeviceClock,
) -> StepTrace:
    """Put a sampled step together. Its spans are in order of their start, the outer one first."""
    spans = _host_spans(marks, record, clock) + _forward_spans(marks, moments, record, clock)
    released_ns = None
    if moments.wait is not None and record.fence in {FenceKind.FINE, FenceKind.COARSE}:
        released = moments.released if record.fence is FenceKind.FINE else moments.end
        if released is not None:
            released_ns = clock.wall(released)
            spans.append(_span("barrier_wait", Track.SCHEDULE, clock, moments.wait, max(moments.wait, released)))
    spans.sort(key=lambda span: (span.start_ns, -span.end_ns))
    start_ns = min([clock.wall_of_host(record.started_ns), *(span.start_ns for span in spans)])
    fine = record.fence is FenceKind.FINE
    return StepTrace(
        step=record.step,
        mode=record.mode,
        backend=record.backend,
        batch_size=record.batch_size,
        tokens=record.tokens,
        phases=tuple(record.phases),
        declared=record.declared,
        resolved=record.resolved,
        downgrade=record.downgrade,
        fence=record.fence,
        reason=record.reason,
        start_ns=start_ns,
        end_ns=max([start_ns, *(span.end_ns for span in spans)]),
        spans=tuple(spans),
        slack_us=record.slack_us,
        wait_us=record.wait_us,
        forward_us=record.forward_us,
        gap_us=record.gap_us,
        gap_last=record.gap_last,
        lost_slack_us=record.lost_slack_us,
        assumed=record.assumed,
        lost_us=record.lost_us,
        released_ns=released_ns,
        bound_record=record.bound_record if fine else None,
        waited_for=record.waited_for,
        links=record.links,
        error_ns=clock.error_ns,
    )


def _host_spans(marks: Iterable[Mark], record: StepRecord, clock: DeviceClock) -> list[SpanTimes]:
    return [
        SpanTimes(
            mark.name,
            Track.HOST,
            clock.wall_of_host(mark.start_ns),
            clock.wall_of_host(mark.end_ns),
            _phase_of(mark, record) if mark.name == "publish" else None,
        )
        for mark in marks
        if mark.name in ON_HOST
    ]


def _forward_spans(
    marks: Iterable[Mark],
    moments: Moments,
    record: StepRecord,
    clock: DeviceClock,
) -> list[SpanTimes]:
    spans: list[SpanTimes] = []
    segments: dict[str, int] = {}
    replay: tuple[float, float] | None = None
    for mark in marks:
        if mark.device_us is None:
            continue
        segment = None
        if mark.name in {"segment", "eager_segment"}:
            segment = segments.get(mark.name, 0)
            segments[mark.name] = segment + 1
        elif mark.name == "replay":
            replay = mark.device_us
            segments.clear()
        phase = _phase_of(mark, record)
        spans.append(_span(mark.name, Track.FORWARD, clock, *mark.device_us, phase=phase, segment=segment))
    if (
        replay is not None
        and record.resolved is SharedReadEnds.IN_REPLAY
        and moments.released is not None
        and replay[0] < moments.released <= replay[1]
    ):
        # The marker stands right behind the metadata preparation that the graph begins with.
        spans.append(
            _span(
                "in_graph_metadata",
                Track.FORWARD,
                clock,
                replay[0],
                moments.released,
                phase=max(0, len(record.phases) - 1),
            ),
        )
    return spans


def _phase_of(mark: Mark, record: StepRecord) -> int | None:
    """Which phase a range belongs to: the one resolved last before it began, or the one that it leads to."""
    phase = mark.phase - 1 if mark.name in _BEHIND_RESOLUTION else mark.phase
    if not 0 <= phase < len(record.phases):
        return None
    if mark.name == "draft" and record.phases[phase].role != "draft":
        return None  # drafts that no model makes
    return phase


def _span(
    name: str,
    track: Track,
    clock: DeviceClock,
    start_us: float,
    end_us: float,
    *,
    phase: int | None = None,
    segment: int | None = None,
) -> SpanTimes:
    return SpanTimes(name, track, clock.wall(start_us), clock.wall(max(start_us, end_us)), phase, segment)
