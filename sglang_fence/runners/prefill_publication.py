"""When a prefill may publish its read end, and what it says when it may not (R8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.contract import FallbackReason, ForwardMode, SharedReadEnds

if TYPE_CHECKING:
    from sglang_fence.attention.base import AttentionBackend
    from sglang_fence.attention.batch import ForwardBatch
    from sglang_fence.runners.model_runner import FenceSettings, ModelRunner


def maybe_publish_prefill_shared_read_done(
    runner: ModelRunner,
    backend: AttentionBackend,
    batch: ForwardBatch,
    ends: SharedReadEnds,
) -> None:
    """Publish the step: PRE_REPLAY if every gate is open, UNKNOWN with the gate's reason if not.

    Called on the forward stream after the batch's metadata is prepared and before anything else is launched.

    Args:
        runner: publishes.
        backend: serves the batch.
        batch: its metadata tells whether the snapshot was built for it.
        ends: the resolved end.
    """
    reason = prefill_gate(runner.fence, backend, batch, ends)
    if reason is None:
        runner.publisher.pre_replay(batch.step, batch.mode)
        runner.log_prefill_engaged(backend)
    else:
        runner.publisher.unknown(batch.step, batch.mode, reason)


def prefill_gate(
    fence: FenceSettings,
    backend: AttentionBackend,
    batch: ForwardBatch,
    ends: SharedReadEnds,
) -> FallbackReason | None:
    """Return why this prefill may not publish; None if it may. What the backend can't do comes before what is off."""
    if fence.policy.forced_coarse:
        return FallbackReason.FORCED
    if ends is SharedReadEnds.UNKNOWN:
        return FallbackReason.BACKEND_UNKNOWN
    if batch.mode is not ForwardMode.EXTEND or ends is not SharedReadEnds.PRE_REPLAY:
        return FallbackReason.MODE_UNSUPPORTED
    if not fence.switches.enable_prefill_war_read_done:
        return FallbackReason.PREFILL_DISABLED
    if not backend.has_extend_snapshot(batch):
        return FallbackReason.SNAPSHOT_MISSING
    if fence.spec_reader_follows_prefill:
        return FallbackReason.SPEC_READER_FOLLOWS
    if fence.host_cache:
        return FallbackReason.HOST_CACHE
    return None
