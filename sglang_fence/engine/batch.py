"""``ScheduledBatch``: a step, from its preparation to its results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sglang_fence.device.buffers import SharedBuffer
    from sglang_fence.engine.requests import Request
    from sglang_fence.runners.step_result import StepResult
    from sglang_fence.runners.work import ForwardWork


@dataclass(frozen=True, slots=True)
class Lane:
    """One request's part in a step."""

    request: Request
    epoch: int
    """The request's epoch when the step was prepared."""
    kv_len: int
    """Its ``kv_len`` after the step."""
    samples: bool
    """Whether the step yields a token of it; a chunk that isn't its prefill's last doesn't."""


@dataclass(slots=True)
class ScheduledBatch:
    """One step."""

    work: ForwardWork
    lanes: tuple[Lane, ...]
    params: SharedBuffer | None
    """Packed sampling parameters, a step tensor; None for greedy."""
    result: StepResult | None = None

    @property
    def traceparents(self) -> tuple[str, ...]:
        """W3C ``traceparent`` of each of its requests that came with one."""
        return tuple(lane.request.traceparent for lane in self.lanes if lane.request.traceparent is not None)
