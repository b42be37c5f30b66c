"""The write-after-read barrier: what holds the schedule stream back behind a launched step.

The scheduler applies it right after each launch, before it processes the results of the step before (R7).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from sglang_fence.contract import FallbackReason, FenceKind, ForwardMode, SharedReadEnds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sglang_fence.device.protocol import DeviceModule, Event, Stream
    from sglang_fence.environ import Switches
    from sglang_fence.fence.events import EventPool
    from sglang_fence.fence.publication import Mailbox, ReadDone


@dataclass(frozen=True, slots=True)
class FencePolicy:
    """Whether the barrier is on, whether it is forced coarse, and who said so (R11)."""

    enabled: bool
    forced_coarse: bool
    why: str
    """In words, for reports."""
    cause: str = "flag"
    """As a label: ``flag``, ``switch``, ``asynchronous_device`` or ``synchronous_device``."""

    @classmethod
    def decide(cls, device: DeviceModule, switches: Switches, fence: str | None = None) -> FencePolicy:
        """Decide once at start.

        Args:
            device: the barrier is on where its streams are asynchronous.
            switches: the environment's.
            fence: the command line's ``--fence`` (``fine``, ``coarse``, ``off``), which outranks the environment.
        """
        if fence is not None:
            return cls(enabled=fence != "off", forced_coarse=fence == "coarse", why=f"--fence {fence}")
        if device.asynchronous:
            why, cause = f"{device.name} has asynchronous streams", "asynchronous_device"
        elif switches.enable_war_barrier:
            why, cause = "SGLANG_ENABLE_WAR_BARRIER", "switch"
        else:
            why = f"{device.name} has no asynchronous streams"
            return cls(enabled=False, forced_coarse=False, why=why, cause="synchronous_device")
        return cls(enabled=True, forced_coarse=switches.force_coarse_war_barrier, why=why, cause=cause)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the barrier did behind one step."""

    kind: FenceKind
    reason: FallbackReason | None
    """Why it was coarse; None otherwise."""
    done: ReadDone | None
    """The publication that was taken, whether or not it could be used."""

    @property
    def ends(self) -> SharedReadEnds:
        """The resolved end; UNKNOWN where nothing was published."""
        return SharedReadEnds.UNKNOWN if self.done is None else self.done.ends

    @property
    def published(self) -> tuple[SharedReadEnds, int] | None:
        """The end that was published for this very step, and the publication's number."""
        if self.done is None or self.reason is FallbackReason.STALE:
            return None
        return self.done.ends, self.done.order


def judge(step: int, done: ReadDone | None, *, last_phase: bool, policy: FencePolicy) -> Verdict:
    """Decide how to fence ``step`` behind publication ``done`` (R6). Touches no stream.

    Args:
        step: the step just launched.
        done: the last publication of its owner, None if the owner was silent.
        last_phase: whether ``done`` came from the step's last shared-read phase (R3), and was published last.
        policy: whether the barrier is on, or forced coarse.
    """
    if not policy.enabled:
        return Verdict(FenceKind.DISABLED, None, done)
    reason: FallbackReason | None
    if policy.forced_coarse:
        reason = FallbackReason.FORCED
    elif done is None:
        reason = FallbackReason.OWNER_SILENT
    elif done.step != step:
        reason = FallbackReason.STALE
    elif not last_phase:
        reason = FallbackReason.NOT_LAST_PHASE
    else:
        reason = done.reason
    kind = FenceKind.FINE if reason is None else FenceKind.COARSE
    return Verdict(kind, reason, done)


class LastReader(Protocol):
    """What the barrier asks of the worker: who owns the step's last shared read, and when is it the last (R3)."""

    @property
    def last_shared_read_mailbox(self) -> Mailbox:
        """The mailbox of ``last_shared_read_runner`` for the step just launched."""

    @property
    def mailboxes(self) -> Iterable[Mailbox]:
        """Every runner's; all are emptied at each barrier, so that nothing is left for a later step."""

    def is_last_shared_read_phase(self, mode: ForwardMode) -> bool:
        """Whether no phase of the same step reads shared buffers after one of ``mode``."""


class WaitProbe(Protocol):
    """What observes the wait; see :class:`sglang_fence.observe.probe.StepProbe`."""

    @property
    def on(self) -> bool:
        """Whether anybody observes: :meth:`after_wait` is called."""

    @property
    def timing(self) -> bool:
        """Whether device moments are taken: :meth:`reads_end` is called as well."""

    @property
    def recording(self) -> bool:
        """Whether there is a flight recorder: :meth:`at_barrier` is called as well."""

    def reads_end(self, verdict: Verdict, event: Event | None, forward: Stream) -> bool:
        """The step is enqueued whole on ``forward``, and its fence decided.

        ``event`` is what a fine fence waits for, or where the reads of a coarse step would have ended, if it is known.
        Returns whether :meth:`before_wait` is to be called.
        """

    def at_barrier(self, verdict: Verdict, event: Event | None) -> None:
        """The fence is decided; ``event`` is what a fine one is about to wait for."""

    def before_wait(self) -> None:
        """The schedule stream is about to wait, or would be."""

    def after_wait(self, verdict: Verdict) -> None:
        """The wait is enqueued."""


class WarBarrier:
    """Applies the fence of each step to the schedule stream."""

    def __init__(
        self,
        device: DeviceModule,
        schedule_stream: Stream,
        policy: FencePolicy,
        pool: EventPool,
        probe: WaitProbe,
    ) -> None:
        self._device = device
        self._schedule_stream = schedule_stream
        self.policy = policy
        self._pool = pool
        self._probe = probe

    def apply(self, step: int, reader: LastReader, forward_stream: Stream) -> Verdict:
        """Hold the schedule stream back behind ``step``, just launched on ``forward_stream``.

        Mailboxes are emptied also when the barrier is off (R11).
        """
        done = reader.last_shared_read_mailbox.take()
        others = self.discard(reader)
        last_phase = (
            done is not None
            and reader.is_last_shared_read_phase(done.mode)
            and not any(other.step == step and other.order > done.order for other in others)
        )
        verdict = judge(step, done, last_phase=last_phase, policy=self.policy)
        event = done.event if done is not None and verdict.kind is FenceKind.FINE else None
        probe, left = self._probe, False
        if probe.timing:  # before the host spends time: what is copied late reads late
            reads_end = _last_event(step, done, others) if verdict.kind is FenceKind.COARSE else event
            left = probe.reads_end(verdict, reads_end, forward_stream)
        if probe.recording:
            probe.at_barrier(verdict, event)
        self._device.host("barrier")
        if left:
            probe.before_wait()
        if event is not None:
            self._schedule_stream.wait_event(event)
        elif verdict.kind is FenceKind.COARSE:
            self._schedule_stream.wait_stream(forward_stream)
        if probe.on:
            probe.after_wait(verdict)
        if done is not None:
            self._pool.give_back(done.event)
        return verdict

    def discard(self, reader: LastReader) -> list[ReadDone]:
        """Empty every mailbox, so that nothing is left for a later step; all that a loop without a barrier does.

        Returns what lay there, for its steps and order alone: the events are given back.
        """
        left = [done for mailbox in reader.mailboxes if (done := mailbox.take()) is not None]
        for done in left:
            self._pool.give_back(done.event)
        return left


def _last_event(step: int, done: ReadDone | None, others: Iterable[ReadDone]) -> Event | None:
    """The event of the step's last phase in launch order; None where that published none."""
    published = [one for one in (done, *others) if one is not None and one.step == step]
    return max(published, key=lambda one: one.order).event if published else None
