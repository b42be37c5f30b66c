"""``StepRecord``: everything the probe writes down about one step. Preallocated and reused."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sglang_fence.contract import FenceKind, ForwardMode, SharedReadEnds

if TYPE_CHECKING:
    from sglang_fence.contract import FallbackReason
    from sglang_fence.observe.marks import Marks
    from sglang_fence.observe.timing import StepTimers

NO_STEP = -1
"""``StepRecord.step`` before the record's first use."""

NOT_YET = -1
"""A moment of the host that is yet to come: virtual time begins at 0."""

UNKNOWN_OR_EARLY = frozenset({SharedReadEnds.UNKNOWN, SharedReadEnds.PRE_REPLAY})
"""Ends of a phase behind which a coarse fence may stand without any event: the end of its metadata is noted."""

FENCED = frozenset({FenceKind.FINE, FenceKind.COARSE})
"""How a step is held back that is held back at all."""


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

    Host times are nanoseconds of the probe's clock (``perf_counter_ns``, or virtual time). Durations on the device are
    µs; they are None until read, on steps whose device times aren't taken, and where a duration has no meaning for the
    step. What they mean is said in :mod:`sglang_fence.observe.durations`.
    """

    __slots__ = (
        "assumed",
        "backend",
        "barrier_ns",
        "batch_size",
        "bound_record",
        "clamped",
        "declared",
        "downgrade",
        "entered_ns",
        "event_id",
        "fence",
        "finished",
        "forward",
        "forward_us",
        "gap_behind_last",
        "gap_behind_us",
        "gap_last",
        "gap_us",
        "host_start_ns",
        "is_written",
        "launch_ns",
        "links",
        "lost_slack_us",
        "lost_us",
        "marks",
        "mode",
        "next",
        "phases",
        "previous",
        "reason",
        "resolved",
        "slack_us",
        "started_ns",
        "starts_alone",
        "step",
        "timed",
        "timers",
        "tokens",
        "traced",
        "wait_us",
        "waited_for",
        "wants_next",
        "wants_start",
        "weight",
    )

    def __init__(self, timers: StepTimers | None) -> None:  # noqa: PLR0915 - one line a field
        self.timers = timers
        self.phases: list[Phase] = []
        self.downgrade: str | None
        self.reason: FallbackReason | None
        self.bound_record: int | None
        """Number of the publication whose record the wait is bound to."""
        self.started_ns = 0
        self.launch_ns = 0
        """Its forward is enqueued whole."""
        self.entered_ns = NOT_YET
        """Its fence is decided, and its wait is enqueued next. Written for the flight recorder alone."""
        self.barrier_ns = 0
        """Its wait is enqueued."""
        self.event_id: int | None = None
        """Tells apart the event that a fine fence waits for. Written for the flight recorder alone."""
        self.host_start_ns = NOT_YET
        """The host enqueues the forward's first work. Written where the start is timed."""
        self.is_written = True
        """Whether more was written down than what a fine step says that is timed in turn: see :meth:`clear`."""
        self.forward: object | None = None
        """The forward stream that the step runs on."""
        self.previous: StepRecord | None = None
        """The step before on that stream, and the one after: their moments are the ends of gaps."""
        self.next: StepRecord | None = None
        self.waited_for: int | None
        """The step whose fence stood before its preparation; of traced steps."""
        self.links: tuple[str, ...]
        """W3C ``traceparent`` of its requests; of traced steps."""
        self.marks: Marks | None
        """Its ranges; of traced steps."""
        self.finished: bool
        """Whether observers heard that it is over."""
        self.timed = False
        """Whether its device times are taken."""
        self.weight = 1
        """How many steps it stands for in sums over timed steps; 0 for one that is timed out of turn."""
        self.wants_start = False
        """Whether the start of its own forward is taken for its own sake."""
        self.wants_next = False
        """Whether the start of the next forward is asked for: what a coarse fence costs is seen there."""
        self.traced = False
        """Whether it was sampled: its ranges are kept, and observers get a :class:`~.trace.StepTrace` of it."""
        self.slack_us: float | None
        self.wait_us: float | None
        self.forward_us: float | None
        self.gap_us: float | None
        """Idle time of the forward stream before the step."""
        self.gap_last: str | None
        """``fence`` or ``host``: who was the last to let the forward start."""
        self.gap_behind_us: float | None
        """As the two before, of the next step, where that can't say so itself."""
        self.gap_behind_last: str | None
        self.starts_alone = False
        """Whether it is timed in turn, but nothing except the start of its forward is known here."""
        self.lost_slack_us: float | None
        self.assumed = False
        """Whether the lost slack rests on an assumed end of the reads (``backend_unknown``)."""
        self.lost_us: float | None
        self.clamped: tuple[str, ...]
        """Durations that came out below zero and are given as zero: values of the catalogue's ``duration`` label."""
        self.reset(NO_STEP, ForwardMode.IDLE, "", 0, 0)

    def reset(self, step: int, mode: ForwardMode, backend: str, batch_size: int, tokens: int) -> None:
        """Begin anew for ``step``. The probe does the same in place, since a call more on each step is too dear.

        Args:
            step: its number; rises by one a launch.
            mode: of its first phase.
            backend: name of the attention backend that serves it.
            batch_size: requests.
            tokens: tokens computed.
        """
        self.begin()
        self.step = step
        self.mode = mode
        self.backend = backend
        self.batch_size = batch_size
        self.tokens = tokens
        self.phases.clear()
        self.declared = self.resolved = SharedReadEnds.UNKNOWN
        self.downgrade = self.reason = self.bound_record = self.event_id = None
        self.launch_ns = self.entered_ns = self.barrier_ns = NOT_YET
        self.fence = FenceKind.ABSENT

    def begin(self) -> None:
        """Forget what a step that is only counted doesn't have."""
        self.finished = self.wants_next = self.wants_start = False
        self.slack_us = self.wait_us = None
        if self.timers is not None:
            self.timers.recorded = 0
        if self.is_written:
            self.clear()

    def clear(self) -> None:
        """Forget what timing and tracing wrote down beside slack and wait."""
        if self.timers is not None:
            self.timers.reset()
        self.is_written = self.timed = self.traced = self.assumed = self.starts_alone = False
        self.weight = 1
        self.host_start_ns = NOT_YET
        self.marks = self.waited_for = self.gap_last = self.gap_behind_last = None
        self.links = self.clamped = ()
        self.forward_us = self.gap_us = self.gap_behind_us = None
        self.lost_slack_us = self.lost_us = None
