"""The compiled :class:`~sglang_fence.sglang_plugin.repeating.Repeating`, where it was built; its rows as records."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from sglang_fence import native
from sglang_fence.contract import FenceKind
from sglang_fence.observe.record import StepRecord
from sglang_fence.sglang_plugin.repeating import Repeating

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from sglang_fence.native._quick import Row

_LAUNCHED, _RESOLVED, _FENCED = range(3)


def make_repeating(cost_ns: MutableMapping[str, int], clock_ns: int) -> Repeating:
    """Return the compiled one, or the one in Python where that isn't there: they do the same."""
    compiled = compiled_class()
    return Repeating(cost_ns, clock_ns) if compiled is None else compiled(cost_ns, clock_ns)


def compiled_class() -> type[Repeating] | None:
    """Return the compiled class; None where it wasn't built, or is switched off."""
    if not native.part(native.QUICK).usable:
        return None
    from sglang_fence.native import _quick  # noqa: PLC0415 - it isn't there on every machine

    class Compiled(_quick.Repeating):
        """As :class:`Repeating`."""

        compiled = True

        @property
        def rows(self) -> tuple[StepRecord, ...]:
            """See :class:`Repeating`."""
            return tuple(_record(row) for row in self.kept())

        @property
        def row(self) -> StepRecord | None:
            """See :class:`Repeating`."""
            row = self.newest()
            return None if row is None else _record(row)

    return cast("type[Repeating]", Compiled)


def _record(row: Row) -> StepRecord:
    step, batch_size, tokens, started_ns, entered_ns, barrier_ns, event, like, progress = row
    record = StepRecord(None)
    record.reset(step, like.mode, like.backend_name, batch_size, tokens)
    record.started_ns = started_ns
    record.entered_ns, record.barrier_ns = entered_ns, barrier_ns
    if progress >= _RESOLVED:
        phase = like.phase
        record.phases.append(phase)
        record.declared, record.resolved, record.downgrade = phase.declared, phase.resolved, phase.downgrade
    if progress == _FENCED:
        record.fence, record.bound_record, record.event_id = FenceKind.FINE, step, event
    return record
