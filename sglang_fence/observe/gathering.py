"""From a step's events, and those of the steps beside it, to its moments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.contract import FenceKind
from sglang_fence.observe.durations import Moments
from sglang_fence.observe.record import FENCED, NOT_YET

if TYPE_CHECKING:
    from sglang_fence.observe.device_times import DeviceTimes
    from sglang_fence.observe.record import StepRecord
    from sglang_fence.observe.timing import StepTimers


def gather(record: StepRecord, timers: StepTimers, times: DeviceTimes) -> Moments:
    """Put the moments of a step whose events are read on the timeline, those of its neighbours beside them."""
    clock, offsets, released = times.clock, times.offsets, timers.released_us
    if released is not None:
        waits = timers.wait_us is None or timers.wait_us < released
        released -= offsets.marker_copy_us if waits else offsets.marker_copy_busy_us
    previous, following = record.previous, record.next
    moments = Moments(
        start=timers.start_us,
        end=timers.end_us,
        released=released,
        metadata=timers.metadata_us,
        wait=timers.wait_us,
    )
    if record.host_start_ns != NOT_YET:
        moments.host_start = clock.on_timeline(record.host_start_ns)
    if previous is not None and previous.timers is not None:
        moments.previous_end = previous.timers.read_end(clock.read)
        previous.is_written = True
        moments.fenced = previous.fence in FENCED
    if following is not None and following.timers is not None and following.host_start_ns != NOT_YET:
        moments.next_start = following.timers.start_us
        moments.next_alone = following.starts_alone
        moments.next_host_start = clock.on_timeline(following.host_start_ns)
    return moments


def follow_gap(record: StepRecord, moments: Moments, times: DeviceTimes) -> None:
    """A gap is natural where the host launched before the forward stream ran empty, behind a fine fence."""
    previous = record.previous
    if (
        record.gap_us is not None
        and previous is not None
        and previous.fence is FenceKind.FINE
        and moments.host_start is not None
        and moments.previous_end is not None
        and moments.host_start < moments.previous_end
    ):
        times.observe_gap(record.gap_us)
