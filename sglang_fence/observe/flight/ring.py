"""``FlightRing``: the records of the last steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from sglang_fence.errors import ConfigError
from sglang_fence.observe.record import StepRecord

if TYPE_CHECKING:
    from collections.abc import Iterable

DEFAULT_STEPS = 256
MAX_STEPS = 65_536


class Repeated(Protocol):
    """Keeps steps of its own."""

    @property
    def rows(self) -> Iterable[StepRecord]:
        """Them, in any order."""

    @property
    def row(self) -> StepRecord | None:
        """The newest of them, once there is one."""


class FlightRing:
    """So many light records, each of which is written anew when its place comes round again.

    A step that is only counted is written here in the first place, so that recording it costs next to nothing. A step
    that is timed has a record of its own, which outlives its barrier; it is copied here by :meth:`keep`.

    Args:
        steps: how many.

    Raises:
        ConfigError: fewer than one, or more than :data:`MAX_STEPS`.
    """

    def __init__(self, steps: int = DEFAULT_STEPS) -> None:
        self.check(steps)
        self.repeated: Repeated | None = None
        """Who keeps steps that repeat the one before; None: all are written here."""
        self.records = tuple(StepRecord(None) for _ in range(steps))

    def all_records(self) -> tuple[StepRecord, ...]:
        """Return every record, in any order; twice as many as there is room for, where steps repeat."""
        return (*self.records, *(() if self.repeated is None else self.repeated.rows))

    @staticmethod
    def check(steps: int) -> None:
        """Refuse what can't be served.

        Raises:
            ConfigError: as for the class.
        """
        if not 0 < steps <= MAX_STEPS:
            msg = f"a flight recorder of {steps} steps: give 1 to {MAX_STEPS}, or 0 for none"
            raise ConfigError(msg)

    def keep(self, record: StepRecord) -> None:
        """Copy what a dump tells of a step that has a record of its own."""
        kept = self.records[record.step % len(self.records)]
        kept.reset(record.step, record.mode, record.backend, record.batch_size, record.tokens)
        kept.phases.extend(record.phases)
        kept.declared, kept.resolved, kept.downgrade = record.declared, record.resolved, record.downgrade
        kept.fence, kept.reason = record.fence, record.reason
        kept.bound_record, kept.event_id = record.bound_record, record.event_id
        kept.started_ns, kept.launch_ns = record.started_ns, record.launch_ns
        kept.entered_ns, kept.barrier_ns = record.entered_ns, record.barrier_ns
