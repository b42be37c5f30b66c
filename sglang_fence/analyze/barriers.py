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
        key = (found.process, found.step)
        mode = next((mode for name, mode in _MODES.items() if name in phases[key]), ForwardMode.DECODE)
        barriers.append(Barrier(found.process, inside[-1] if inside else None, found.step, mode, marks.get(key)))
    return barriers


def inferred_barriers(waits: Sequence[Wait], streams: Mapping[StreamKey, StreamWork]) -> list[Barrier]:
    """Return the waits that can only be the fence's, told from the streams alone.

    A forward stream is one that replays graphs. The schedule stream is one that works, waits for the forward stream,
    and is waited for by it. Of several such waits without a launch in between, the first is the barrier.
    """
    forward = {key for key, work in streams.items() if work.replays}
    waited_for = {(wait.stream, wait.record.stream) for wait in waits if wait.record is not None}
    last: dict[StreamKey, int] = {}
    barriers: list[Barrier] = []
    for wait in waits:
        record = wait.record
        if record is None or record.stream not in forward or wait.stream in forward or wait.stream not in streams:
            continue
        if (record.stream, wait.stream) not in waited_for:
            continue
        if not streams[record.stream].any_between(last.get(record.stream, -1), wait.correlation):
            continue
        last[record.stream] = wait.correlation
        barriers.append(Barrier(wait.stream[0], wait, None, None, None))
    return barriers
