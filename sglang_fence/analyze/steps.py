"""Slack and wait of each step, from what ran and what was bound to what.

The words are the design's: R is the moment of the bound record, F the end of the forward stream's work that was
enqueued before the barrier, A when the schedule stream would have gone on without the fence. Slack is F − R and wait
is R − A, neither below 0. The tool gives no time to a record, so R is taken from what stands before it; for a marker
inside a graph, the node behind it says by when it had passed at the latest.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from sglang_fence.contract import FenceKind, ForwardMode, SharedReadEnds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sglang_fence.analyze.barriers import Barrier
    from sglang_fence.analyze.waits import Record, Wait
    from sglang_fence.analyze.work import Replay, StreamKey, StreamWork


class Basis(StrEnum):
    """What a coarse step's lost slack rests on."""

    MARKER = "marker"
    """Its graph has a marker: the reads were known to end there."""

    ASSUMED = "replay_launch"
    """Nobody knows where its reads end; this is what an end right before the replay would have given."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step as the capture shows it. Times are in ns of the capture's clock; None is what it doesn't show."""

    process: int
    number: int | None
    mode: ForwardMode | None
    fence: FenceKind | None
    ends: SharedReadEnds | None
    marked: FenceKind | None
    """What our mark says; ``fence`` follows it where there is one."""

    streams_say: FenceKind | None
    forward_stream: int | None
    schedule_stream: int | None
    replays: tuple[Replay, ...] = ()
    began: int | None = None
    """The first work of the step on its forward stream."""

    reads_end: int | None = None
    reads_end_latest: int | None = None
    forward_end: int | None = None
    waited_from: int | None = None
    """When the schedule stream came to the wait: it had nothing left to do, and the host had called."""

    next_work: int | None = None
    """When the schedule stream's next work began."""

    lost_from: int | None = None
    """Where the reads of a coarse step ended, or are assumed to."""

    basis: Basis | None = None
    copied: int | None = None
    """When the host told the observer to copy the moment of the record, just before the wait."""

    earlier: bool = False
    """Whether the wait is bound to a record from before the step: the fence then held nothing back of it."""

    @property
    def slack(self) -> int | None:
        """How much sooner than a coarse fence the schedule stream was let go, in ns."""
        return _span(self.reads_end, self.forward_end)

    @property
    def slack_least(self) -> int | None:
        """The same, had the marker passed as late as the node behind it allows, in ns."""
        return _span(self.reads_end_latest, self.forward_end)

    @property
    def wait(self) -> int | None:
        """How long the schedule stream stalled, in ns."""
        return _span(self.waited_from, self.reads_end)

    @property
    def released(self) -> int | None:
        """When the schedule stream was let go."""
        if self.waited_from is None or self.reads_end is None:
            return None
        return max(self.waited_from, self.reads_end)

    @property
    def observer_late(self) -> int | None:
        """How long after the end of reads, at least, the host had the observer copy that moment, in ns; 0: in time.

        An event reads no earlier than it is recorded, so the observer's slack is so much smaller, down to none.
        """
        return _span(self.reads_end_latest, self.copied)

    @property
    def overtaken(self) -> bool:
        """Whether the schedule stream went on before the reads had ended: the step was read wrongly, or is unsound."""
        return self.next_work is not None and self.reads_end is not None and self.next_work < self.reads_end

    @property
    def lost_slack(self) -> int | None:
        """What a fine fence would have given a coarse step, in ns."""
        return _span(self.lost_from, self.forward_end)


def _span(start: int | None, end: int | None) -> int | None:
    return None if start is None or end is None else max(0, end - start)


def measured(barriers: Sequence[Barrier], streams: Mapping[StreamKey, StreamWork]) -> Iterator[Step]:
    """Yield the step of each barrier, in the given order."""
    before: dict[StreamKey, int] = {}
    for barrier in barriers:
        wait = barrier.wait
        record = wait.record if wait is not None else None
        if wait is None or record is None or record.stream not in streams:
            yield Step(
                barrier.process,
                barrier.step,
                barrier.mode,
                barrier.marked,
                None,
                barrier.marked,
                None,
                None,
                None if wait is None else wait.stream[1],
            )
            continue
        # The step is what was enqueued on its forward stream since the barrier before.
        yield _measured(barrier, wait, record, before.get(record.stream, -1), streams)
        before[record.stream] = wait.correlation


def _measured(
    barrier: Barrier,
    wait: Wait,
    record: Record,
    since: int,
    streams: Mapping[StreamKey, StreamWork],
) -> Step:
    forward, schedule = streams[record.stream], streams.get(wait.stream)
    replays = forward.replays_between(since, wait.correlation)
    bound = next((replay for replay in replays if replay.correlation == record.correlation), None)
    said, ends = _kind(record, wait, forward, replays)
    if said is FenceKind.COARSE and barrier.marked is FenceKind.FINE:
        ends = SharedReadEnds.POST_REPLAY  # published after everything, so the streams can't tell it from coarse
    forward_end = forward.done_before(wait.correlation)
    reads_end = latest = forward.done_before(record.correlation)
    if bound is not None:
        reads_end = bound.marker_after
        latest = bound.marker_before if reads_end is not None else None
    next_work = schedule.first_after(wait.correlation) if schedule is not None else None
    if latest is not None and next_work is not None:
        latest = min(latest, next_work)  # what stands behind the wait can't begin before the record
    idle_from = schedule.done_before(wait.correlation) if schedule is not None else None
    fence = barrier.marked or said
    lost_from, basis = _lost_from(forward, replays) if fence is FenceKind.COARSE else (None, None)
    return Step(
        process=barrier.process,
        number=barrier.step,
        mode=barrier.mode,
        fence=fence,
        ends=ends,
        marked=barrier.marked,
        streams_say=said,
        forward_stream=record.stream[1],
        schedule_stream=wait.stream[1],
        replays=replays,
        # Before the first barrier of the capture there is start-up, which is no step.
        began=forward.first_after(since) if since >= 0 else None,
        reads_end=reads_end,
        reads_end_latest=latest,
        forward_end=forward_end,
        waited_from=wait.called if idle_from is None else max(wait.called, idle_from),
        next_work=next_work,
        lost_from=lost_from,
        basis=basis,
        copied=barrier.copied,
        earlier=record.correlation < since,
    )


def _kind(
    record: Record,
    wait: Wait,
    forward: StreamWork,
    replays: Sequence[Replay],
) -> tuple[FenceKind, SharedReadEnds | None]:
    if any(replay.correlation == record.correlation for replay in replays):
        return FenceKind.FINE, SharedReadEnds.IN_REPLAY
    if not forward.any_between(record.correlation, wait.correlation):
        return FenceKind.COARSE, None
    if replays and record.correlation > replays[0].correlation:
        return FenceKind.FINE, SharedReadEnds.POST_REPLAY
    return FenceKind.FINE, SharedReadEnds.PRE_REPLAY


def _lost_from(forward: StreamWork, replays: Sequence[Replay]) -> tuple[int | None, Basis | None]:
    # The last phase that reads is the one whose end counts, and the marker stands in its first segment.
    marked = [replay.marker_after for replay in replays if replay.marker_after is not None]
    if marked:
        return marked[-1], Basis.MARKER
    if replays:
        return forward.done_before(replays[0].correlation), Basis.ASSUMED
    return None, None
