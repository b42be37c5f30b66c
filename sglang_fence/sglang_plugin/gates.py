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

_LATE = frozenset({SharedReadEnds.IN_REPLAY, SharedReadEnds.POST_REPLAY})
"""What an eager prefill can't publish."""


def prefill_reason(
    border: Border,
    runner: RunnerLike,
    backend: BackendLike,
    mode: ForwardMode,
    declared: SharedReadEnds,
) -> FallbackReason:
    """Return which gate was closed for a batch of ``mode`` that ``runner`` served, and that published nothing."""
    if border.forced():
        return FallbackReason.FORCED
    if mode.is_idle():
        return FallbackReason.IDLE
    if not mode.is_prefill():  # decode-like batches are published by graphs alone, and an eager runner had this one
        return FallbackReason.NO_GRAPH
    snapshots = border.snapshots_prefill(backend)
    if declared is SharedReadEnds.UNKNOWN and not snapshots:
        return FallbackReason.BACKEND_UNKNOWN
    if mode is not ForwardMode.EXTEND or declared in _LATE:
        return FallbackReason.MODE_UNSUPPORTED
    return _held_back(border, runner, snapshots=snapshots)


def _held_back(border: Border, runner: RunnerLike, *, snapshots: bool) -> FallbackReason:
    """Which gate was closed for a batch that could have published. Few backends get here: these take long to ask."""
    if not border.prefill_on():
        return FallbackReason.PREFILL_DISABLED
    if border.spec_reader_follows(runner):
        return FallbackReason.SPEC_READER_FOLLOWS
    if border.host_cache():
        return FallbackReason.HOST_CACHE
    return FallbackReason.SNAPSHOT_MISSING if snapshots else FallbackReason.OWNER_SILENT
