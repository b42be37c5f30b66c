"""Each wait of a stream for an event, and the record that it is bound to.

The tool numbers every record of an event (``eventSyncId``), and a wait names the one that it is bound to: the newest
that was issued before it (R10). A record inside a graph carries the correlation number of the graph's launch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sglang_fence.analyze.tables import SYNC_STREAM_WAIT

if TYPE_CHECKING:
    from sglang_fence.analyze.capture import Capture
    from sglang_fence.analyze.work import StreamKey

_RECORDS = """
    SELECT globalPid, eventId, eventSyncId, streamId, correlationId FROM record
    WHERE eventSyncId IN (SELECT eventSyncId FROM wait WHERE syncType = ?)
"""
"""Of most records nobody waits for: only those are read whose number some wait has."""

_WAITS = """
    SELECT globalPid, streamId, correlationId, start, eventId, eventSyncId FROM wait WHERE syncType = ?
    ORDER BY globalPid, correlationId
"""


@dataclass(frozen=True, slots=True)
class Record:
    """An event's record: on which stream, and by which call."""

    stream: StreamKey
    correlation: int


@dataclass(frozen=True, slots=True)
class Wait:
    """A stream was told to wait."""

    stream: StreamKey
    correlation: int
    called: int
    """When the host told it, in ns of the capture's clock."""

    record: Record | None
    """None where it was recorded before the capture began, or the tool doesn't say."""


def stream_waits(capture: Capture) -> list[Wait]:
    """Return the waits of all streams, by process and call."""
    records = {
        (process, event, number): Record((process, stream), correlation)
        for process, event, number, stream, correlation in capture.rows(_RECORDS, (SYNC_STREAM_WAIT,))
    }
    return [
        Wait((process, stream), correlation, start, records.get((process, event, number)))
        for process, stream, correlation, start, event, number in capture.rows(_WAITS, (SYNC_STREAM_WAIT,))
    ]
