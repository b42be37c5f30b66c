"""Testing aids, for this project's tests and for those of whoever writes an observer, a backend or an exporter.

* :class:`RecordingObserver` keeps what the probe told it, and says whether ranges were balanced.
* :func:`build_nvtx_injection` builds an NVTX tool that logs every event of a process; :func:`read_nvtx_log` reads it.

Nothing here is imported by the runtime.
"""

from sglang_fence.testing.nvtx_injection import build_nvtx_injection, nvtx_environment
from sglang_fence.testing.nvtx_log import NvtxEvent, NvtxKind, NvtxRangeEvent, nvtx_ranges, read_nvtx_log
from sglang_fence.testing.recording import Call, RecordingObserver
from sglang_fence.testing.records import FrozenStepRecord

__all__ = [
    "Call",
    "FrozenStepRecord",
    "NvtxEvent",
    "NvtxKind",
    "NvtxRangeEvent",
    "RecordingObserver",
    "build_nvtx_injection",
    "nvtx_environment",
    "nvtx_ranges",
    "read_nvtx_log",
]
