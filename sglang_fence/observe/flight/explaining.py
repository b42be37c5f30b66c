"""What one dump says: who waits for which record of which step, and what was the last to be completed.

Only the host's knowledge is in a dump. Whether the device has let a wait go can't be known from it, unless results that
came back later say so; then the wait isn't listed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from sglang_fence.contract import FenceKind
from sglang_fence.observe.flight.facts import Stage

if TYPE_CHECKING:
    from sglang_fence.contract import SharedReadEnds
    from sglang_fence.observe.flight.facts import Dump, StepFacts


class Who(StrEnum):
    """Who waits."""

    HOST = "host"
    SCHEDULE_STREAM = "schedule stream"
    FORWARD_STREAM = "forward stream"


class What(StrEnum):
    """What for."""

    RECORD = "record"
    """The record of a step's read-done event."""

    FORWARD = "forward"
    """All of a step's forward."""

    RESULTS = "results"
    """A step's results."""

    LAUNCH = "launch"
    """A call that enqueues a step's forward, to return."""

    BARRIER = "barrier"
    """What is done between a launch and its wait, to return."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Somebody waits, or may wait still."""

    who: Who
    what: What
    step: int
    record: int | None = None
    event: int | None = None
    ends: SharedReadEnds | None = None
    since_ns: int | None = None
    """For how long at the dump; None: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How one process stood."""

    dump: Dump
    file: str
    idle: bool
    """Whether no step is known to be under way."""
    completed: int | None
    """The newest step that is known to be over; None: of none it is known."""
    known_by: str
    """How: ``results``, ``timing events``, ``synchronised``; or ``nothing``."""
    waits: tuple[Wait, ...]
    """Those of the host first, then of the streams, the oldest first."""
    unknown: tuple[str, ...]
    """What can't be known from this dump, in sentences."""

    @property
    def label(self) -> str:
        """What to call it."""
        return f"rank {self.dump.rank}"

    @property
    def launched(self) -> tuple[int, int]:
        """How far the host has come: the newest step, and its stage."""
        newest = self.dump.newest
        return (-1, 0) if newest is None else (newest.step, newest.stage.order)


def stand(dump: Dump, file: str = "") -> Standing:
    """Say what one dump says.

    Args:
        dump: it.
        file: where it was read.
    """
    newest, progress = dump.newest, dump.progress
    completed, known_by = _completed(dump)
    open_steps = [step for step in dump.steps if not dump.settled(step) and not _is_over(step, dump, completed)]
    idle = not open_steps and progress.awaited is None
    waits: list[Wait] = []
    if progress.awaited is not None:
        waits.append(Wait(who=Who.HOST, what=What.RESULTS, step=progress.awaited))
    if newest is not None and not idle:
        waits += _host_in_step(newest, dump)
    if open_steps and progress.in_order:
        first = open_steps[0]
        since = dump.now_ns - first.started_ns
        waits.append(Wait(who=Who.FORWARD_STREAM, what=What.FORWARD, step=first.step, since_ns=since))
    waits += [wait for step in open_steps if (wait := _bound(step, dump)) is not None]
    return Standing(
        dump=dump,
        file=file,
        idle=idle,
        completed=completed,
        known_by=known_by,
        waits=tuple(waits),
        unknown=tuple(_unknown(dump, completed, open_steps)),
    )


def _completed(dump: Dump) -> tuple[int | None, str]:
    progress = dump.progress
    if progress.in_hand is not None and progress.in_hand >= (progress.timed or 0):
        return progress.in_hand, "results"
    if progress.timed is not None:
        return progress.timed, "timing events"
    settled = [step.step for step in dump.steps if dump.settled(step)]
    if settled and dump.newest is not None and dump.settled(dump.newest):
        return settled[-1], "synchronised"
    return None, "nothing"


def _is_over(step: StepFacts, dump: Dump, completed: int | None) -> bool:
    """Whether a step is known to be over: itself, or since a younger one is that ran behind it."""
    if completed is None:
        return False
    return step.step <= completed if dump.progress.in_order else step.step == completed


def _host_in_step(newest: StepFacts, dump: Dump) -> list[Wait]:
    since = dump.now_ns - newest.touched_ns
    if newest.stage is Stage.LAUNCHING:
        return [Wait(who=Who.HOST, what=What.LAUNCH, step=newest.step, since_ns=since)]
    if newest.stage in {Stage.LAUNCHED, Stage.AT_BARRIER}:
        return [Wait(who=Who.HOST, what=What.BARRIER, step=newest.step, since_ns=since)]
    return []


def _bound(step: StepFacts, dump: Dump) -> Wait | None:
    """What the schedule stream waits for behind a step, once its wait is enqueued or about to be."""
    if step.stage not in {Stage.AT_BARRIER, Stage.FENCED}:
        return None
    since = None if step.issued_ns is None else dump.now_ns - step.issued_ns
    if step.fence is FenceKind.COARSE:
        return Wait(who=Who.SCHEDULE_STREAM, what=What.FORWARD, step=step.step, since_ns=since)
    if step.fence is not FenceKind.FINE:
        return None
    return Wait(
        who=Who.SCHEDULE_STREAM,
        what=What.RECORD,
        step=step.step,
        record=step.record,
        event=step.event,
        ends=step.resolved,
        since_ns=since,
    )


def _unknown(dump: Dump, completed: int | None, open_steps: list[StepFacts]) -> list[str]:
    found: list[str] = []
    if not dump.steps:
        return []  # which is a fact of its own, and told as such
    if completed is None:
        found.append("which step was the last to be completed: the host had no results and no device times of any")
    if not dump.progress.in_order and open_steps:
        found.append("which of the older steps are over: they run on several streams, and end in any order")
    if any(_bound(step, dump) is not None for step in open_steps):
        found.append("which of the waits the device has let go: the host would have to ask it, and a dump doesn't")
    if any(step.fence is FenceKind.FINE and step.issued_ns is not None and step.record is None for step in open_steps):
        found.append("which record a fine wait is bound to: its publication wasn't seen")
    return found
