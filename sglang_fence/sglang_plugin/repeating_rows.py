"""``Rows``: repeated steps as the flight recorder keeps them."""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING

from sglang_fence.contract import FenceKind, SharedReadEnds
from sglang_fence.observe.record import NO_STEP, NOT_YET, StepRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sglang_fence.observe.record import Phase
    from sglang_fence.sglang_plugin.likeness import Likeness


class Rows:
    """One for each of the last steps, written anew when its place comes round again."""

    def __init__(self) -> None:
        self.rows: Sequence[StepRecord] = ()
        """None where there is no flight recorder."""
        self.row: StepRecord | None = None
        """The newest of them."""

    def keep(self, steps: int) -> None:
        """Write down the last ``steps`` repeated steps."""
        self.rows = tuple(StepRecord(None) for _ in range(steps))

    def forget_row(self) -> int | None:
        """Strike the newest repeated step off the flight recorder's; return when it began, in ns; None: none was."""
        if self.row is None or self.row.step == NO_STEP:
            return None
        self.row.step = NO_STEP
        return self.row.started_ns

    def _begin_row(self, like: Likeness, number: int, size: int, tokens: int) -> None:
        row = self.row = self.rows[number % len(self.rows)]
        row.started_ns = perf_counter_ns()
        row.step = number
        row.mode, row.backend = like.mode, like.backend_name
        row.batch_size, row.tokens = size, tokens
        row.phases.clear()
        row.declared = row.resolved = SharedReadEnds.UNKNOWN
        row.downgrade = row.bound_record = row.event_id = row.reason = None
        row.fence = FenceKind.ABSENT
        row.entered_ns = row.barrier_ns = NOT_YET

    def _write_phase(self, phase: Phase | None) -> None:
        row = self.row
        if row is not None and phase is not None:
            row.phases.append(phase)
            row.declared, row.resolved, row.downgrade = phase.declared, phase.resolved, phase.downgrade

    def _end_row(self, like: Likeness, number: int, event: object | None) -> None:
        row = self.row
        if row is None:
            return
        row.fence, row.reason = FenceKind.COARSE if like.coarse else FenceKind.FINE, like.reason
        if not like.coarse:
            row.bound_record, row.event_id = number, id(event)
        row.entered_ns = perf_counter_ns()
