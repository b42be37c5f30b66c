"""The tables of a capture that are read, column by column. Whatever isn't listed here is neither read nor kept."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A table of Nsight Systems' SQLite export."""

    view: str
    """What our queries call it."""

    name: str
    columns: tuple[str, ...]


_WORK = ("start", "end", "streamId", "correlationId", "globalPid", "graphNodeId")

KERNELS = SourceTable("kernel", "CUPTI_ACTIVITY_KIND_KERNEL", _WORK)
COPIES = SourceTable("copy", "CUPTI_ACTIVITY_KIND_MEMCPY", _WORK)
FILLS = SourceTable("fill", "CUPTI_ACTIVITY_KIND_MEMSET", _WORK)
# Only in a capture that did not trace the nodes of graphs: one row for a whole replay.
WHOLE_GRAPHS = SourceTable("whole_graph", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", _WORK[:-1])
RECORDS = SourceTable(
    "record",
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT",
    ("streamId", "correlationId", "globalPid", "eventId", "eventSyncId"),
)
WAITS = SourceTable(
    "wait",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    ("start", "streamId", "correlationId", "globalPid", "syncType", "eventId", "eventSyncId"),
)
CALLS = SourceTable("call", "CUPTI_ACTIVITY_KIND_RUNTIME", ("start", "globalTid", "correlationId", "nameId"))
NODES = SourceTable("node", "CUDA_GRAPH_NODE_EVENTS", ("start", "globalTid", "graphNodeId", "originalGraphNodeId"))
RANGES = SourceTable(
    "range",
    "NVTX_EVENTS",
    ("start", "end", "eventType", "text", "globalTid", "textId", "domainId", "int64Value"),
)
STRINGS = SourceTable("string", "StringIds", ("id", "value"))
ABOUT = SourceTable("about", "META_DATA_EXPORT", ("name", "value"))

TABLES = (KERNELS, COPIES, FILLS, WHOLE_GRAPHS, RECORDS, WAITS, CALLS, NODES, RANGES, STRINGS, ABOUT)

SYNC_STREAM_WAIT = 2
"""``syncType`` of a stream that waits for an event."""

NVTX_PUSH_POP, NVTX_MARK, NVTX_DOMAIN = 59, 34, 75
"""``eventType`` of a range of a thread, of a mark, and of a domain's name."""

PROCESS_BITS = ~0xFFFFFF
"""A ``globalTid`` is the ``globalPid`` of its process, and the thread in its low 24 bits."""
