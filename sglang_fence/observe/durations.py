"""From moments to durations: the arithmetic of the design, and nothing else. All in µs of the device's timeline.

| | moment |
|---|---|
| G | the forward starts on its stream |
| F | the forward stream at the barrier call: the end of the forward |
| R | the record that the fence is bound to; coarse: F |
| A, L | the schedule stream before and behind the wait; L is the later of A and R |
| C | where the reads of a coarse step would have ended |
| H | the host launches the next forward, on the device's clock |
| g | the gap between two forwards that fine steps show |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sglang_fence.contract import FallbackReason, FenceKind
from sglang_fence.observe.record import FENCED

if TYPE_CHECKING:
    from sglang_fence.observe.record import StepRecord

_KNOWN_END = frozenset(
    {
        FallbackReason.FORCED,
        FallbackReason.STALE,
        FallbackReason.OWNER_SILENT,
        FallbackReason.UNRECORDED,
        FallbackReason.PREFILL_DISABLED,
    },
)
"""Reasons of coarse steps whose reads have an end that is known; under ``backend_unknown`` it is assumed."""

_RESOLUTION = 0.001


@dataclass(slots=True)
class Moments:
    """What is known of one step; None: not known."""

    start: float | None = None
    """G of the step."""
    end: float | None = None
    """F."""
    released: float | None = None
    """R of a fine step, C of a coarse one, with what a copy is late by taken off."""
    metadata: float | None = None
    """C, where nothing was published."""
    wait: float | None = None
    """A."""
    host_start: float | None = None
    """H of the step itself."""
    previous_end: float | None = None
    """F of the step before, on the same stream."""
    fenced: bool = False
    """Whether a fence stood behind the step before."""
    next_start: float | None = None
    """G of the step after, on the same stream."""
    next_host_start: float | None = None
    """H of the step after."""
    next_alone: bool = False
    """Whether the step after is timed, but can't say itself how long the gap between the two was."""


def settle(record: StepRecord, moments: Moments, *, natural_gap: float = 0.0, latency: float = 0.0) -> None:
    """Write a step's durations into its record. Those below zero count as zero, and as clamped.

    Args:
        record: its fence and reason are decided.
        moments: what was read.
        natural_gap: g.
        latency: how long after the host's launch a forward starts that nothing holds back, at the most.
    """
    start, end = moments.start, moments.end
    if start is not None and end is not None:
        record.forward_us = _rounded(max(0.0, end - start))
    if start is not None and moments.previous_end is not None:
        record.gap_us = _clamped(record, "forward_gap", start - moments.previous_end)
        record.gap_last = _last(start, moments.host_start, latency, fenced=moments.fenced)
    if end is not None and moments.next_start is not None and moments.next_alone:
        record.gap_behind_us = _clamped(record, "forward_gap", moments.next_start - end)
        fenced = record.fence in FENCED
        record.gap_behind_last = _last(moments.next_start, moments.next_host_start, latency, fenced=fenced)
    if end is None or moments.wait is None or record.fence not in FENCED:
        return
    fine = record.fence is FenceKind.FINE
    released = moments.released if fine else end
    if released is None:
        return
    record.slack_us = _clamped(record, "slack", end - released)
    record.wait_us = _rounded(max(0.0, released - moments.wait))  # a release before the wait is no error: no stall
    if not fine:
        _settle_loss(record, moments, end, natural_gap)


def _settle_loss(record: StepRecord, moments: Moments, end: float, natural_gap: float) -> None:
    reads_end = _reads_end(record, moments)
    if reads_end is None:
        return
    record.assumed = record.reason is FallbackReason.BACKEND_UNKNOWN
    record.lost_slack_us = _clamped(record, "lost_slack", end - reads_end)
    start, host, wait = moments.next_start, moments.next_host_start, moments.wait
    if start is None or host is None or wait is None:
        return
    held_back = max(0.0, max(wait, end) - max(wait, reads_end))
    earliest = max(end + natural_gap, host, start - held_back)
    record.lost_us = _rounded(max(0.0, start - earliest))


def _reads_end(record: StepRecord, moments: Moments) -> float | None:
    """C."""
    if record.reason not in _KNOWN_END and record.reason is not FallbackReason.BACKEND_UNKNOWN:
        return None
    return moments.metadata if moments.released is None else moments.released


def _last(start: float, host: float | None, latency: float, *, fenced: bool) -> str:
    """Who was the last to let the forward start.

    The host, where it started as soon as the host had launched it; else it stood behind the schedule stream, which the
    fence had let go, or behind the forward before.
    """
    if host is None or not fenced:
        return "host"
    return "host" if start - host <= latency + _RESOLUTION else "fence"


def _clamped(record: StepRecord, duration: str, us: float) -> float:
    us = _rounded(us)
    if us < 0.0:
        record.clamped = (*record.clamped, duration)
        return 0.0
    return us


def _rounded(us: float) -> float:
    return round(us, 3)  # a nanosecond is far below what either device resolves
