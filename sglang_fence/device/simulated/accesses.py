"""Accesses to shared buffers: who makes them, and the pairs that nothing orders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sglang_fence.device.simulated.timeline import Lane, Record

HazardKind = Literal["RAW", "WAR", "WAW"]

Touch = tuple[int, Sequence[int]]
"""A buffer's id, and rows of it. The rows must not change afterwards."""


@dataclass(frozen=True, slots=True)
class Hazard:
    """Two accesses to the same rows of a buffer, at least one of them a write, in no order."""

    kind: HazardKind
    """What the first does and the second does: the second's letter comes first, as in write-after-read."""

    buffer: str
    rows: tuple[int, ...]
    """All rows that both touch, sorted."""

    first: str
    """The kernel or host call that was enqueued first."""

    second: str
    first_step: int
    second_step: int
    missing: str
    """A sentence that names the edge which would have ordered them."""


class Op:
    """One enqueued kernel, or one access by the host."""

    __slots__ = ("clock", "lane", "name", "order", "ordinal", "prefix", "seq", "step")

    def __init__(self, lane: Lane, prefix: str, name: str, ordinal: int, step: int, order: int) -> None:
        self.lane = lane
        self.seq = lane.seq
        self.clock: Mapping[int, int] = lane.clock
        self.prefix = prefix
        self.name = name
        self.ordinal = ordinal
        self.step = step
        self.order = order

    @property
    def label(self) -> str:
        """What reports call it: ``name``, ``name#2``, ``graph[3]/name``."""
        suffix = f"#{self.ordinal}" if self.ordinal else ""
        return f"{self.prefix}{self.name}{suffix}"

    def comes_before(self, record: Record) -> bool:
        """Whether this op is done, in every interleaving, once ``record`` is reached."""
        if record.lane is self.lane:
            return self.seq <= record.seq
        return self.seq <= record.clock.get(self.lane.id, 0)


Watcher = Callable[[Op, Sequence[Touch], Sequence[Touch]], None]
"""Hears of an op, what it reads and what it writes."""
