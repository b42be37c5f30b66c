"""When the host made the calls that the device carried out: the tool traces both, and gives both one number.

A capture may lack them (``--trace`` without ``cuda``, a stripped copy, a tool that traces only some calls); then every
question here is answered with None.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sglang_fence.analyze.tables import CALLS, PROCESS_BITS, RECORDS

if TYPE_CHECKING:
    from sglang_fence.analyze.capture import Capture
    from sglang_fence.analyze.tables import SourceTable
    from sglang_fence.analyze.work import StreamKey


@dataclass(frozen=True, slots=True)
class HostCall:
    """A call, or the time in which it must have been made. In ns of the capture's clock."""

    start: int
    end: int


class HostCalls:
    """The calls of a capture by their number, and the records of events by their stream."""

    def __init__(self, capture: Capture) -> None:
        self._calls = dict(_calls(capture))
        self._records: dict[StreamKey, list[int]] = {}
        for process, stream, call in capture.rows("SELECT globalPid, streamId, correlationId FROM record"):
            self._records.setdefault((process, stream), []).append(call)
        for numbers in self._records.values():
            numbers.sort()
        self._moments = dict(_moments(capture))

    def of(self, process: int, call: int | None) -> HostCall | None:
        """Return when the host made a call; None where that isn't known."""
        return None if call is None else self._calls.get((process, call))

    def moment(self, stream: StreamKey, call: int | None) -> int | None:
        """Return when the device reached a record, in ns; None where the tool wasn't asked (``--cuda-event-trace``)."""
        return None if call is None else self._moments.get((stream, call))

    def first_record(self, stream: StreamKey, after: int, before: int) -> int | None:
        """Return the number of the first record on the stream between two calls."""
        numbers = self._records.get(stream, [])
        index = bisect_right(numbers, after)
        return numbers[index] if index < len(numbers) and numbers[index] < before else None

    def last_record(self, stream: StreamKey, after: int, before: int) -> int | None:
        """Return the number of the last record on the stream between two calls."""
        numbers = self._records.get(stream, [])
        index = bisect_left(numbers, before) - 1
        return numbers[index] if index >= 0 and numbers[index] > after else None


def _columns(capture: Capture, table: SourceTable) -> set[str]:
    """Return a table's own columns: those that the analysis doesn't read aren't in its view."""
    return {name for (name,) in capture.rows("SELECT name FROM pragma_table_info(?)", (table.name,))}


def _moments(capture: Capture) -> list[tuple[tuple[StreamKey, int], int]]:
    if "timestamp" not in _columns(capture, RECORDS):
        return []
    sql = f'SELECT globalPid, streamId, correlationId, timestamp FROM main."{RECORDS.name}" WHERE timestamp > 0'  # noqa: S608 - our own names
    return [(((process, stream), call), moment) for process, stream, call, moment in capture.rows(sql)]


def _calls(capture: Capture) -> list[tuple[tuple[int, int], HostCall]]:
    if not capture.has(CALLS):
        return []
    end = '"end"' if "end" in _columns(capture, CALLS) else "start"
    sql = f'SELECT globalTid, correlationId, start, {end} FROM main."{CALLS.name}"'  # noqa: S608 - our own names
    return [
        ((thread & PROCESS_BITS, call), HostCall(start, start if ended is None else max(start, ended)))
        for thread, call, start, ended in capture.rows(sql)
        if None not in {thread, call, start}
    ]
