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
    early_extend = batch.mode is ForwardMode.EXTEND and ends is SharedReadEnds.PRE_REPLAY
    gates = (
        (fence.policy.forced_coarse, FallbackReason.FORCED),
        (ends is SharedReadEnds.UNKNOWN, FallbackReason.BACKEND_UNKNOWN),
        (not early_extend, FallbackReason.MODE_UNSUPPORTED),
        (not fence.switches.enable_prefill_war_read_done, FallbackReason.PREFILL_DISABLED),
        (not backend.has_extend_snapshot(batch), FallbackReason.SNAPSHOT_MISSING),
        (fence.spec_reader_follows_prefill, FallbackReason.SPEC_READER_FOLLOWS),
        (fence.host_cache, FallbackReason.HOST_CACHE),
    )
    return next((reason for closed, reason in gates if closed), None)
