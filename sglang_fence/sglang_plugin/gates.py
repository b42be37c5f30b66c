"""Why a prefill did not publish its read end: the gates that SGLang looks at.

Where more than one is closed, what the backend can't do comes before what is switched off, as in the runtime: opening
the switch would not help there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.contract import FallbackReason, ForwardMode, SharedReadEnds

if TYPE_CHECKING:
    from sglang_fence.sglang_plugin.border import Border
    from sglang_fence.sglang_plugin.shapes import BackendLike, RunnerLike


def prefill_reason(
    border: Border,
    runner: RunnerLike,
    backend: BackendLike,
    mode: ForwardMode,
    declared: SharedReadEnds,
) -> FallbackReason:
    """Return which gate was closed for a batch of ``mode`` that ``runner`` served, and that published nothing."""
    snapshots = border.snapshots_prefill(backend)
    late = declared in {SharedReadEnds.IN_REPLAY, SharedReadEnds.POST_REPLAY}
    gates = (
        (border.forced(), FallbackReason.FORCED),
        (mode.is_idle(), FallbackReason.IDLE),
        # Decode-like batches are published by graphs alone, and an eager runner had this one.
        (not mode.is_prefill(), FallbackReason.NO_GRAPH),
        (declared is SharedReadEnds.UNKNOWN and not snapshots, FallbackReason.BACKEND_UNKNOWN),
        (mode is not ForwardMode.EXTEND or late, FallbackReason.MODE_UNSUPPORTED),
        (not border.prefill_on(), FallbackReason.PREFILL_DISABLED),
        (border.spec_reader_follows(runner), FallbackReason.SPEC_READER_FOLLOWS),
        (border.host_cache(), FallbackReason.HOST_CACHE),
        (snapshots, FallbackReason.SNAPSHOT_MISSING),
    )
    return next((reason for closed, reason in gates if closed), FallbackReason.OWNER_SILENT)
