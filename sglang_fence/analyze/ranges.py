"""Our NVTX ranges in a capture. With them, steps have numbers and modes, and barriers are named."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sglang_fence.analyze.tables import NVTX_DOMAIN, NVTX_MARK, NVTX_PUSH_POP, PROCESS_BITS
from sglang_fence.catalogue.ranges import NVTX_DOMAIN as OUR_DOMAIN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sglang_fence.analyze.capture import Capture

OUR_EVENTS = """
    SELECT r.start, coalesce(r.end, r.start), coalesce(r.text, s.value), r.globalTid, r.int64Value, r.eventType
    FROM range r LEFT JOIN string s ON s.id = r.textId
    JOIN (SELECT DISTINCT d.globalTid & ? AS pid, d.domainId AS domain FROM range d
          LEFT JOIN string t ON t.id = d.textId
          WHERE d.eventType = ? AND coalesce(d.text, t.value) = ?) AS ours
      ON r.domainId = ours.domain AND r.globalTid & ? = ours.pid
    WHERE r.eventType IN (?, ?) ORDER BY r.start
"""
OUR_EVENTS_VALUES = (PROCESS_BITS, NVTX_DOMAIN, OUR_DOMAIN, PROCESS_BITS, NVTX_PUSH_POP, NVTX_MARK)


@dataclass(frozen=True, slots=True)
class NamedRange:
    """A range or a mark of our domain, on the host. Times are in ns of the capture's clock."""

    name: str
    thread: int
    start: int
    end: int
    step: int
    """−1 where there is none, as at graph capture."""

    @property
    def process(self) -> int:
        """The process of its thread."""
        return self.thread & PROCESS_BITS


class Moments:
    """What lies within any of some ranges, told without looking at each of them."""

    def __init__(self, ranges: Iterable[NamedRange]) -> None:
        self._starts: dict[int, list[int]] = {}
        self._ends: dict[int, list[int]] = {}
        """By thread, beside each start: the latest end of the ranges that had begun by then."""
        for found in sorted(ranges, key=lambda one: one.start):
            ends = self._ends.setdefault(found.thread, [])
            ends.append(max(found.end, ends[-1]) if ends else found.end)
            self._starts.setdefault(found.thread, []).append(found.start)

    def hold(self, thread: int, moment: int) -> bool:
        """Whether something that the thread did at that moment was done inside one of them."""
        begun = bisect_right(self._starts.get(thread, ()), moment)
        return begun > 0 and self._ends[thread][begun - 1] >= moment


def our_ranges(capture: Capture) -> list[NamedRange]:
    """Return the ranges and marks of our domain, by start; none where NVTX wasn't traced or our exporter was off."""
    return [
        NamedRange(name, thread, start, end, -1 if step is None else step)
        for start, end, name, thread, step, _ in capture.rows(OUR_EVENTS, OUR_EVENTS_VALUES)
        if name is not None
    ]
