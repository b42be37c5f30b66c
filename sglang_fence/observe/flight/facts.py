"""What a dump holds: ``Dump``, and ``StepFacts`` of each step. No text of a user's is in it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from sglang_fence.contract import FenceKind

if TYPE_CHECKING:
    from sglang_fence.contract import FallbackReason, ForwardMode, SharedReadEnds
    from sglang_fence.observe.record import Phase


class Cause(StrEnum):
    """Why a dump was written."""

    SIGNAL = "signal"
    """Somebody sent SIGUSR2."""

    WATCHDOG = "watchdog"
    """Nothing has moved for too long, and not all is done."""

    EXCEPTION = "exception"
    """The serving thread, or another one, ended in an exception."""

    EXIT = "exit"
    """The process ended while the recorder was still on."""

    ASKED = "asked"
    """The program asked for it."""


class Clock(StrEnum):
    """What the host times are of."""

    HOST = "host"
    VIRTUAL = "virtual"
    """The simulated device's time, which stands still where the host does."""


class Stage(StrEnum):
    """How far the host has come with a step, in this order."""

    LAUNCHING = "launching"
    """It has begun, and its fence isn't decided: mostly, its forward isn't enqueued whole."""

    LAUNCHED = "launched"
    """Its forward is enqueued whole; its fence isn't decided. Noted of some steps alone."""

    AT_BARRIER = "at_barrier"
    """Its fence is decided; the wait isn't enqueued."""

    FENCED = "fenced"
    """Its wait is enqueued, or it has passed a barrier that is switched off."""

    UNFENCED = "unfenced"
    """Its loop has no barrier."""

    @property
    def order(self) -> int:
        """The later, the larger."""
        return _ORDER[self]


_ORDER = {stage: place for place, stage in enumerate(Stage)}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFacts:
    """What is known of one step. Host times are nanoseconds of the dump's clock; None: not reached."""

    step: int
    mode: ForwardMode
    backend: str
    batch_size: int
    tokens: int
    phases: tuple[Phase, ...]
    declared: SharedReadEnds
    resolved: SharedReadEnds
    downgrade: str | None
    fence: FenceKind
    reason: FallbackReason | None
    record: int | None
    """Number of the publication whose record the wait is bound to. Rises from publication to publication."""
    event: int | None
    """Tells the event of that record apart from others that are alive: a marker comes again with each replay."""
    started_ns: int
    launched_ns: int | None
    """Its forward was enqueued whole; noted where the probe is told, else it is known from :attr:`entered_ns`."""
    entered_ns: int | None
    """Its fence was decided."""
    issued_ns: int | None
    """Its wait was enqueued."""

    @property
    def stage(self) -> Stage:
        """How far the host has come with it."""
        if self.issued_ns is not None:
            return Stage.FENCED
        if self.entered_ns is not None:
            return Stage.UNFENCED if self.fence is FenceKind.ABSENT else Stage.AT_BARRIER
        return Stage.LAUNCHING if self.launched_ns is None else Stage.LAUNCHED

    @property
    def touched_ns(self) -> int:
        """When the host last did something for its fence."""
        return max(self.started_ns, self.launched_ns or 0, self.entered_ns or 0, self.issued_ns or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressFacts:
    """What the host knew of the device; see :class:`~.progress.Progress`. None: nothing."""

    awaited: int | None
    in_hand: int | None
    timed: int | None
    in_order: bool
    settled_ns: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dump:
    """One process, at one moment."""

    version: str
    """Of the program that wrote it."""
    rank: str
    """What the process is called among its peers."""
    pid: int
    cause: Cause
    detail: str | None
    """The type of an exception; of the watchdog, for how long nothing had moved."""
    wall_ns: int
    """When, since the Unix epoch."""
    now_ns: int
    """When, on the clock of the host times."""
    clock: Clock
    capacity: int
    """Steps that the recorder holds at the most."""
    progress: ProgressFacts
    steps: tuple[StepFacts, ...]
    """The oldest first."""
    stack: tuple[str, ...]
    """Where the serving thread was, ``module:function:line``, the innermost first."""

    @property
    def newest(self) -> StepFacts | None:
        """The step that began last."""
        return self.steps[-1] if self.steps else None

    def settled(self, step: StepFacts) -> bool:
        """Whether the device was synchronised after the step."""
        settled_ns = self.progress.settled_ns
        return settled_ns is not None and step.started_ns <= settled_ns
