"""From what the hooks see to what the probe is told: one step at a time, begun, launched, and closed exactly once.

A step is closed by the barrier. One that meets none (its loop has no barrier) is closed as ``absent``: at the end of
its launch where the loop is known, at the beginning of the next one where it isn't.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from sglang_fence.contract import FenceKind

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from sglang_fence.contract import FallbackReason, ForwardMode, SharedReadEnds
    from sglang_fence.observe.flight.progress import Progress
    from sglang_fence.observe.record import Phase


class Verdict:
    """How a barrier came out. There is one, told anew for each step: whoever hears of it reads it at once."""

    __slots__ = ("event", "kind", "published", "reason")

    def __init__(self) -> None:
        self.kind = FenceKind.ABSENT
        self.reason: FallbackReason | None = None
        self.published: tuple[SharedReadEnds, int] | None = None
        """The resolved end that the owner published for this step, and the step's number; None: nothing."""
        self.event: object | None = None
        """What was published: what a fine fence waits for, and where reads behind a forced coarse one would end."""

    def tell(
        self,
        kind: FenceKind,
        reason: FallbackReason | None = None,
        published: tuple[SharedReadEnds, int] | None = None,
        event: object | None = None,
    ) -> Verdict:
        """Say all of it, and return itself."""
        self.kind = kind
        self.reason = reason
        self.published = published
        self.event = event
        return self


class Probe(Protocol):
    """What is told of each step; see :class:`sglang_fence.observe.probe.StepProbe`."""

    marks: bool
    """Whether ranges may be heard: where not, nobody need ask for one."""

    recording: bool
    """Whether there is a flight recorder: :meth:`at_barrier` is asked for."""

    progress: Progress
    """What the host knows of the device."""

    @property
    def traced(self) -> bool:
        """Whether the step in progress is traced."""

    def step_started(self, step: int, mode: ForwardMode, backend: str, batch_size: int, tokens: int) -> None:
        """A step's batch is ready."""

    def forward_started(self, stream: object) -> None:
        """Its first work is enqueued on ``stream`` next."""

    def resolved(self, phase: Phase) -> None:
        """A runner served a phase of it."""

    def launched(self) -> None:
        """It is enqueued whole."""

    def link(self, traceparents: tuple[str, ...]) -> None:
        """Say which requests it serves."""

    def range(self, name: str) -> AbstractContextManager[None] | None:
        """Begin a range, to be exited; None where nobody would hear of it."""

    def reads_end(self, verdict: Verdict, event: object | None, forward: object) -> None:
        """Its fence is decided; its shared reads end at ``event``, where that is known."""

    def at_barrier(self, verdict: Verdict, event: object | None) -> None:
        """Its fence is decided; a fine one waits for ``event``."""

    def before_wait(self) -> None:
        """The barrier is applied next."""

    def after_wait(self, verdict: Verdict) -> None:
        """The barrier is applied."""

    def no_barrier(self) -> None:
        """There is none."""

    def drain(self) -> object:
        """Read what is ready, bounded."""

    def idle(self) -> None:
        """Nothing will be launched soon: read all that is ready."""

    def close(self) -> None:
        """The last step is over: read what is left, and tell the observers that the run ended."""


class Steps:
    """The step in progress."""

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.number = -1
        self._barrier: AbstractContextManager[None] | None = None
        self.open = False
        """Whether a step was begun and not closed."""

    def begin(self, mode: ForwardMode, backend: str, batch_size: int, tokens: int) -> None:
        """Begin the next step; close the one before where nobody did."""
        if self.open:
            self.close_absent()
        self.number += 1
        self.open = True
        self.probe.step_started(self.number, mode, backend, batch_size, tokens)

    def close_absent(self) -> None:
        """Close an open step that met no barrier."""
        if self.open:
            self.open = False
            self.probe.no_barrier()
            self.probe.drain()

    def barrier(self, verdict: Verdict, forward: object) -> None:
        """The barrier of the open step is applied next."""
        probe = self.probe
        if probe.marks:
            self._barrier = probe.range("barrier")
        probe.reads_end(verdict, verdict.event, forward)
        if probe.recording:
            probe.at_barrier(verdict, verdict.event if verdict.kind is FenceKind.FINE else None)
        probe.before_wait()

    def close(self, verdict: Verdict) -> None:
        """The barrier of the open step is applied."""
        self.open = False
        probe = self.probe
        if probe.marks:
            leave(self._barrier)
        probe.after_wait(verdict)
        probe.drain()


def leave(marked: AbstractContextManager[None] | None) -> None:
    """End a range, if one was begun."""
    if marked is not None:
        marked.__exit__(None, None, None)
