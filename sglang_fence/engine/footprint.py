"""``Footprint``: what a step's forward touches of the memory that forwards on other streams touch too.

On a single forward stream each forward comes after the one before, and that orders all of this for free: the next
owner of a page writes it behind the last reader, the next decode reads the token that the last one sampled. Between two
forward streams nothing does. Whatever two steps have in common, and one of them writes, needs an order of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sglang_fence.memory.kv_pool import PagedKV
    from sglang_fence.runners.work import ForwardWork


@dataclass(frozen=True, slots=True)
class Footprint:
    """Taken at the launch, when the host's mapping of sliding-window pages is the one that the forward gathers."""

    rows: frozenset[int]
    """Rows of the relay. A decode reads its own and writes them, a prefill writes them: any in common is a conflict."""
    pages: frozenset[int]
    written: frozenset[int]
    """Those of ``pages`` that get keys and values; the others hold a prefix that others may read as well."""
    swa_pages: frozenset[int]
    swa_written: frozenset[int]

    @classmethod
    def of(cls, work: ForwardWork, kv: PagedKV) -> Footprint:
        """Return what a step that is launched now will touch."""
        written = work.pages if work.written is None else work.written
        swa = kv.swa
        return cls(
            frozenset(work.rows),
            frozenset(work.pages),
            frozenset(written),
            frozenset() if swa is None else frozenset(swa.swa_pages(work.pages)),
            frozenset() if swa is None else frozenset(swa.swa_pages(written)),
        )

    def conflicts(self, other: Footprint) -> bool:
        """Whether the two need an order: they share something that one of them writes."""
        pairs = (
            (self.rows, other.rows),
            (self.written, other.pages),
            (self.pages, other.written),
            (self.swa_written, other.swa_pages),
            (self.swa_pages, other.swa_written),
        )
        return not all(own.isdisjoint(others) for own, others in pairs)
