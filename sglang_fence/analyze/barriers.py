"""Which of the waits are the fence's: named by our ranges, or inferred from how the streams wait for one another."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sglang_fence.contract import FenceKind, ForwardMode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sglang_fence.analyze.ranges import NamedRange
    from sglang_fence.analyze.waits import Wait
    from sglang_fence.analyze.work import StreamKey, StreamWork

_MARKS = {f"barrier.{kind}": kind for kind in FenceKind}
# A phase that only steps of one mode have; a decode has none of these.
_MODES = {
    "target_verify": ForwardMode.TARGET_VERIFY,
    "prefill": ForwardMode.EXTEND,
}


@dataclass(frozen=True, slots=True)
class Barrier:
    """One application of the fence."""

    process: int
    wait: Wait | None
    """None where the barrier enqueued none, or none is in the capture."""

    step: int | None
    """Its number, from our ranges."""

    mode: ForwardMode | None
    """From our ranges."""

    marked: FenceKind | None
    """What our mark in the range says."""

    copied: int | None = None
    """When the host told the observer's stream to wait for the same record, in ns; None where it didn't."""


def named_barriers(
    ranges: Sequence[NamedRange],
    waits: Sequence[Wait],
    streams: Mapping[StreamKey, StreamWork],
) -> list[Barrier]:
    """Return a barrier for each of our ranges of that name."""
    marks = {(found.process, found.step): _MARKS[found.name] for found in ranges if found.name in _MARKS}
    phases: dict[tuple[int, int], set[str]] = {}
    for found in ranges:
        phases.setdefault((found.process, found.step), set()).add(found.name)
    by_process: dict[int, list[Wait]] = {}
    for wait in sorted(waits, key=lambda wait: wait.called):
        by_process.setdefault(wait.stream[0], []).append(wait)
    barriers: list[Barrier] = []
    for found in ranges:
        if found.name != "barrier" or found.step < 0:
            continue
        mine = by_process.get(found.process, [])
        first = bisect_left(mine, found.start, key=lambda wait: wait.called)
        last = bisect_left(mine, found.end, key=lambda wait: wait.called)
        # The observer's own stream waits in there as well, to copy the marker's moment; nothing ever runs on it.
        inside = [wait for wait in mine[first:last] if wait.stream in streams]
        fence = inside[-1] if inside else None
        copied = None if fence is None else _copied(mine[first:last], fence, streams)
        key = (found.process, found.step)
        mode = next((mode for name, mode in _MODES.items() if name in phases[key]), ForwardMode.DECODE)
        barriers.append(Barrier(found.process, fence, found.step, mode, marks.get(key), copied))
    return barriers


def _copied(waits: Sequence[Wait], fence: Wait, streams: Mapping[StreamKey, StreamWork]) -> int | None:
    if fence.record is None:
        return None
    copies = [wait.called for wait in waits if wait.stream not in streams and wait.record == fence.record]
    return copies[-1] if copies else None


def inferred_barriers(waits: Sequence[Wait], streams: Mapping[StreamKey, StreamWork]) -> list[Barrier]:
    """Return the waits that can only be the fence's, told from the streams alone.

    A forward stream is one that replays graphs. Before each launch it waits for the schedule stream, which prepared the
    batch; the first time that the schedule stream then waits for it is the barrier. The observer's calibration, and
    streams that copy results, wait in one direction only.
    """
    forward = {key for key, work in streams.items() if work.replays}
    launching: set[tuple[StreamKey, StreamKey]] = set()
    barriers: list[Barrier] = []
    for wait in waits:
        if wait.record is None:
            continue
        recorded = wait.record.stream
        if wait.stream in forward and recorded not in forward:
            launching.add((wait.stream, recorded))
        elif (recorded, wait.stream) in launching and wait.stream in streams:
            launching.discard((recorded, wait.stream))
            barriers.append(Barrier(wait.stream[0], wait, None, None, None))
    return barriers
