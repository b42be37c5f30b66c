"""What a capture says of each step without looking into a graph: its ends, its witness, and the host's calls."""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sglang_fence.analyze.capture import opened
from sglang_fence.analyze.graphs import graph_shapes
from sglang_fence.analyze.ranges import our_ranges
from sglang_fence.analyze.waits import stream_waits
from sglang_fence.analyze.work import stream_work
from tests.analyze.making.host_calls import HostCall, HostCalls

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from sglang_fence.analyze.ranges import NamedRange
    from sglang_fence.analyze.waits import Wait
    from sglang_fence.analyze.work import StreamKey, StreamWork


@dataclass(frozen=True, slots=True)
class Witnessed:
    """One step. Times are in ns of the capture's clock; None is what the capture doesn't show."""

    step: int
    forward_end: int
    waited_from: int
    began: int | None
    """The witness's kernel behind the end of shared reads."""

    idle: int
    """When the schedule stream had nothing left to do before the wait."""

    startable: int
    """When the forward stream had nothing left to do or to wait for before the step's first event."""

    witness_call: HostCall | None = None
    """The launch of the witness's kernel."""

    start_call: HostCall | None = None
    """The record of G, on steps whose start is timed."""

    end_call: HostCall | None = None
    """The record of F."""

    copy_call: HostCall | None = None
    """The record of R behind the observer's wait."""

    wait_call: HostCall | None = None
    """The record of A."""

    copy_asked: HostCall | None = None
    """Around the record of R, where only waits are known: from the observer's wait to the fence's."""

    end_read: int | None = None
    """When the device reached the record of F, where the tool was asked to tell; likewise the next two."""

    copy_read: int | None = None
    wait_read: int | None = None


@dataclass(frozen=True, slots=True)
class Sight:
    """A whole capture."""

    steps: Mapping[int, Witnessed]
    late_ns: tuple[int, ...]
    """How late the witness's kernels start, from its calibration."""

    late_records: tuple[tuple[int, HostCall], ...]
    """The calibration of records that come late: when the kernel before had ended, and the record's call."""


def witnessed(path: Path) -> Sight:
    """Read a capture of ``serve --witness``, or of any run with our ranges."""
    with opened(path) as capture:
        ranges = our_ranges(capture)
        streams = stream_work(capture, graph_shapes(capture, ranges))
        waits = sorted(stream_waits(capture), key=lambda wait: wait.called)
        calls = HostCalls(capture)
    replaying = [key for key, work in streams.items() if work.replays]
    if not replaying:
        return Sight({}, (), ())
    forward = max(replaying, key=lambda key: len(streams[key].replays))
    barriers = [found for found in ranges if found.name == "barrier" and found.step >= 0]
    seen: dict[int, Witnessed] = {}
    witness: StreamKey | None = None
    since = -1
    for barrier in barriers:
        inside = _inside(barrier, waits)
        working = [wait for wait in inside if wait.stream in streams]
        if not working:
            continue
        fence, others = working[-1], [wait for wait in working[:-1] if wait.stream != working[-1].stream]
        if streams[forward].done_before(fence.correlation) is None:
            continue
        copies = [wait for wait in inside if wait.stream not in streams and wait.record == fence.record is not None]
        witness = others[-1].stream if others else witness
        asked = _Asked(fence, others[-1] if others else None, copies[-1] if copies else None)
        seen[barrier.step] = _witnessed(barrier.step, asked, since, forward, streams, calls)
        since = fence.correlation
    before = barriers[0].start if barriers else 0
    return Sight(seen, *_calibrated([wait for wait in waits if wait.called < before], streams, witness, calls))


@dataclass(frozen=True, slots=True)
class _Asked:
    """The waits of one barrier: the fence's, the witness's and the observer's."""

    fence: Wait
    witness: Wait | None
    copy: Wait | None


def _witnessed(
    step: int,
    asked: _Asked,
    since: int,
    forward: StreamKey,
    streams: Mapping[StreamKey, StreamWork],
    calls: HostCalls,
) -> Witnessed:
    fence, copy = asked.fence, asked.copy
    work, schedule, process = streams[forward], streams[fence.stream], fence.stream[0]
    end, idle = work.done_before(fence.correlation), schedule.done_before(fence.correlation) or 0
    first, last = _call_after(work, since), _call_before(work, fence.correlation)
    started = calls.last_record(forward, since, first)  # behind those of memory that was freed
    ready = [streams[key].done_before(started or first) or 0 for key in (forward, fence.stream)]
    witness = asked.witness
    ran = None if witness is None else _call_after(streams[witness.stream], witness.correlation)
    ended = calls.last_record(forward, last, fence.correlation if copy is None else copy.correlation)
    copied = None if copy is None else calls.first_record(copy.stream, copy.correlation, fence.correlation)
    waited = None if copy is None else calls.last_record(fence.stream, copy.correlation, fence.correlation)
    return Witnessed(
        step=step,
        forward_end=end or 0,
        waited_from=max(fence.called, idle),
        began=None if witness is None else streams[witness.stream].first_after(witness.correlation),
        idle=idle,
        startable=max(ready),
        witness_call=calls.of(process, ran),
        start_call=calls.of(process, started),
        end_call=calls.of(process, ended),
        copy_call=calls.of(process, copied),
        wait_call=calls.of(process, waited),
        copy_asked=None if copy is None else HostCall(copy.called, fence.called),
        end_read=calls.moment(forward, ended),
        copy_read=None if copy is None else calls.moment(copy.stream, copied),
        wait_read=calls.moment(fence.stream, waited),
    )


def _call_after(work: StreamWork, call: int) -> int:
    """Return the number of the first call after another that made the stream do something."""
    index = bisect_right(work.correlations, call)
    return work.correlations[index] if index < len(work.correlations) else sys.maxsize


def _call_before(work: StreamWork, call: int) -> int:
    """Return the number of the last one before it."""
    index = bisect_left(work.correlations, call)
    return work.correlations[index - 1] if index else -1


def _inside(barrier: NamedRange, waits: Sequence[Wait]) -> list[Wait]:
    first = bisect_left(waits, barrier.start, key=lambda wait: wait.called)
    last = bisect_left(waits, barrier.end, key=lambda wait: wait.called)
    return [wait for wait in waits[first:last] if wait.stream[0] == barrier.process]


def _calibrated(
    waits: Iterable[Wait],
    streams: Mapping[StreamKey, StreamWork],
    witness: StreamKey | None,
    calls: HostCalls,
) -> tuple[tuple[int, ...], tuple[tuple[int, HostCall], ...]]:
    """Return how late the witness starts, and the late records, from what was done before the first barrier."""
    late: list[int] = []
    records: list[tuple[int, HostCall]] = []
    busy: StreamKey | None = None
    for wait in waits:
        record = wait.record
        if witness is None or record is None or record.stream not in streams:
            continue
        end = streams[record.stream].done_before(record.correlation)
        if end is None:
            continue
        if wait.stream == witness:
            busy = record.stream
            began = streams[witness].first_after(wait.correlation)
            if began is not None:
                late.append(began - end)
        elif record.stream == busy and wait.stream not in streams:
            copied = calls.first_record(wait.stream, wait.correlation, sys.maxsize)
            # Where the tool doesn't trace that call, the wait before it does for both, here and in the steps.
            records.append((end, calls.of(wait.stream[0], copied) or HostCall(wait.called, wait.called)))
    return tuple(late), tuple(records)
