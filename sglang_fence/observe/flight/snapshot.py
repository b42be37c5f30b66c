"""From the records of a probe to the facts of a dump. On any thread, while the serving thread runs or is stuck.

Nothing is locked: a record that begins anew while it is read is read once more, and then left out.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from sglang_fence.observe.flight.facts import ProgressFacts, StepFacts
from sglang_fence.observe.flight.progress import NEVER
from sglang_fence.observe.record import NO_STEP, NOT_YET

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import FrameType

    from sglang_fence.observe.flight.progress import Progress
    from sglang_fence.observe.record import StepRecord

MAX_FRAMES = 64
_TRIES = 3


def steps_of(records: Iterable[StepRecord], newest: StepRecord) -> tuple[StepFacts, ...]:
    """Return the steps of ``records`` and the one in progress, the oldest first.

    The one in progress may have a record of its own; what that says outranks a copy of it.
    """
    found = [facts for record in records if record is not newest and (facts := _facts(record)) is not None]
    current = _facts(newest)
    if current is not None:
        found = [facts for facts in found if facts.step != current.step or facts.started_ns > current.started_ns]
        found.append(current)
    return tuple(sorted(found, key=lambda facts: (facts.started_ns, facts.step)))


def progress_of(progress: Progress) -> ProgressFacts:
    """Return what is known of the device."""
    return ProgressFacts(
        awaited=_if_not(NO_STEP, progress.awaited),
        in_hand=_if_not(NO_STEP, progress.in_hand),
        timed=_if_not(NO_STEP, progress.timed),
        in_order=progress.in_order,
        settled_ns=_if_not(NEVER, progress.settled_ns),
    )


def stack_of(thread: int | None) -> tuple[str, ...]:
    """Return where a thread is in its Python code, the innermost frame first: names and lines, no values."""
    frame: FrameType | None = None if thread is None else sys._current_frames().get(thread)  # noqa: SLF001 - its name
    found: list[str] = []
    while frame is not None and len(found) < MAX_FRAMES:
        module = frame.f_globals.get("__name__", "?")
        found.append(f"{module}:{frame.f_code.co_qualname}:{frame.f_lineno}")
        frame = frame.f_back
    return tuple(found)


def _facts(record: StepRecord) -> StepFacts | None:
    """Read a record; None where it was never used, or is begun anew again and again."""
    for _ in range(_TRIES):
        if record.step == NO_STEP:
            return None
        before = (record.step, record.started_ns)
        facts = StepFacts(
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
            record=record.bound_record,
            event=record.event_id,
            started_ns=record.started_ns,
            launched_ns=_if_not(NOT_YET, record.launch_ns),
            entered_ns=_if_not(NOT_YET, record.entered_ns),
            issued_ns=_if_not(NOT_YET, record.barrier_ns),
        )
        if before == (record.step, record.started_ns):
            return facts
    return None


def _if_not(nothing: int, value: int) -> int | None:
    return None if value == nothing else value
