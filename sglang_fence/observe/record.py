"""``StepRecord``: everything the probe writes down about one step. Preallocated and reused."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sglang_fence.contract import FenceKind, ForwardMode, SharedReadEnds

if TYPE_CHECKING:
    from sglang_fence.contract import FallbackReason
    from sglang_fence.observe.timing import StepTimers

NO_STEP = -1
"""``StepRecord.step`` before the record's first use."""


class Phase(NamedTuple):
    """One runner's part in a step."""

    mode: ForwardMode
    role: str
    """``target`` or ``draft``."""
    backend: str
    declared: SharedReadEnds
    resolved: SharedReadEnds
    downgrade: str | None


class StepRecord:
    """One step; ``declared``, ``resolved`` and ``downgrade`` are those of its last phase.

    Host times are ``perf_counter_ns``; durations on the device are µs, None until (or unless) resolved.
    """

    __slots__ = (
        "backend",
        "barrier_ns",
        "batch_size",
        "declared",
        "downgrade",
        "fence",
        "launch_ns",
        "mode",
        "phases",
        "reason",
        "resolved",
        "slack_us",
        "started_ns",
        "step",
        "timed",
        "timers",
        "tokens",
        "wait_us",
    )

    def __init__(self, timers: StepTimers | None) -> None:
        self.timers = timers
        self.phases: list[Phase] = []
        self.reset(NO_STEP, ForwardMode.IDLE, "", 0, 0)

    def reset(self, step: int, mode: ForwardMode, backend: str, batch_size: int, tokens: int) -> None:
        """Begin anew for ``step``.

        Args:
            step: its number; rises by one a launch.
            mode: of its first phase.
            backend: name of the attention backend that serves it.
            batch_size: requests.
            tokens: tokens computed.
        """
        self.step = step
        self.mode = mode
        self.backend = backend
        self.batch_size = batch_size
        self.tokens = tokens
        self.phases.clear()
        self.declared = SharedReadEnds.UNKNOWN
        self.resolved = SharedReadEnds.UNKNOWN
        self.downgrade: str | None = None
        self.fence = FenceKind.ABSENT
        self.reason: FallbackReason | None = None
        self.started_ns = 0
        self.launch_ns = 0
        self.barrier_ns = 0
        self.timed = False
        self.slack_us: float | None = None
        self.wait_us: float | None = None
