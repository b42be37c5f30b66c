"""What the compiled part wrote down of steps, as records: for the flight recorder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.contract import FenceKind
from sglang_fence.observe.record import StepRecord

if TYPE_CHECKING:
    from sglang_fence.native._quick import Repeating, Row

_LAUNCHED, _RESOLVED, _EXTENDED, _FENCED = range(4)


class RowKeeper:
    """Reads them, on any thread.

    Args:
        kept_by: the compiled part.
    """

    def __init__(self, kept_by: Repeating) -> None:
        self._kept_by = kept_by

    @property
    def rows(self) -> tuple[StepRecord, ...]:
        """All, in any order."""
        return tuple(record_of(row) for row in self._kept_by.kept())

    @property
    def row(self) -> StepRecord | None:
        """The newest, once there is one."""
        row = self._kept_by.newest()
        return None if row is None else record_of(row)


def record_of(row: Row) -> StepRecord:
    """Return what a row says, as a record."""
    step, batch_size, tokens, started_ns, entered_ns, barrier_ns, bound, event, like, progress = row
    record = StepRecord(None)
    record.reset(step, like.mode, like.backend_name, batch_size, tokens)
    record.started_ns = started_ns
    record.entered_ns, record.barrier_ns = entered_ns, barrier_ns
    if progress >= _RESOLVED:
        record.phases.append(like.phase)
    if progress >= _EXTENDED and like.extended is not None:
        record.phases.append(like.extended)
    if record.phases:
        last = record.phases[-1]
        record.declared, record.resolved, record.downgrade = last.declared, last.resolved, last.downgrade
    if progress == _FENCED and like.reason is not None:
        record.fence, record.reason = FenceKind.COARSE, like.reason
    elif progress == _FENCED:
        record.fence, record.bound_record, record.event_id = FenceKind.FINE, bound, event
        record.resolved = like.ends  # what was published outranks what the phase resolved
    return record
