"""The exact answer on the simulated device: does every read come before the moment, in every interleaving?

Nothing is overwritten here, and nothing delayed. The device tells of each kernel which rows it touches. The moments are
records on the forward stream, and the happens-before relation says which accesses a moment doesn't come after.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sglang_fence.audit.device import OWN
from sglang_fence.audit.findings import Access, Findings
from sglang_fence.audit.phases import Listener, Phase, Phases, reads_last
from sglang_fence.audit.published import StepFence, judge_fence
from sglang_fence.audit.verdicts import CaseVerdict
from sglang_fence.contract import ForwardMode, SharedReadEnds
from sglang_fence.device.simulated.streams import SimulatedEvent
from sglang_fence.fence.publication import resolve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sglang_fence.audit.cases import Case, Claim
    from sglang_fence.audit.device import AuditDevice
    from sglang_fence.device.buffers import SharedBuffer
    from sglang_fence.device.protocol import Stream
    from sglang_fence.device.simulated.accesses import Op, Touch
    from sglang_fence.device.simulated.device import SimulatedDevice
    from sglang_fence.device.simulated.timeline import Record
    from sglang_fence.engine.engine import Engine
    from sglang_fence.fence.barrier import LastReader, Verdict, WarBarrier
    from sglang_fence.runners.step_result import StepResult
    from sglang_fence.runners.work import ForwardWork


@dataclass(slots=True)
class Moments:
    """One phase: its accesses, and the moments of its candidate ends."""

    phase: Phase
    first: int
    """Index of its first access in the step's log."""
    prepared: int = 0
    launched: int = 0
    last: int = 0
    at: dict[SharedReadEnds, Record] = field(default_factory=dict["SharedReadEnds", "Record"])

    def accesses(self, log: Sequence[Access]) -> list[Access]:
        """Its own: those of its metadata, and those of its replay."""
        return [*log[self.first : self.prepared], *log[self.launched : self.last]]


class OrderKeeper(Listener):
    """Listens to an engine on the simulated device while it serves.

    Args:
        engine: on ``planted``, whose late readers have to show.
        planted: the device that the engine runs on.
        device: the simulated device inside.
    """

    def __init__(self, engine: Engine, planted: AuditDevice, device: SimulatedDevice) -> None:
        self._engine = engine
        self._planted = planted
        self._device = device
        planted.take_up()
        self._names = {reader.buffer.id: name for name, reader in planted.readers.items()}
        self._lasting = planted.buffers
        self._log: list[Access] = []
        self._moments: dict[int, Moments] = {}
        self._end: Record | None = None
        self._mode = ForwardMode.IDLE
        self._found: dict[Claim, Findings] = {}
        self._phases = Phases(engine)
        self._barrier: WarBarrier = engine.barrier
        self._run = engine.worker.run
        vars(engine.worker)["run"] = self._run_step
        vars(engine.barrier)["apply"] = self._apply
        device.watch(self._hear)

    def remove(self) -> None:
        """Leave the engine as it was."""
        self._device.watch(None)
        self._phases.remove()
        del vars(self._engine.worker)["run"]
        del vars(self._barrier)["apply"]

    def before_metadata(self, phase: Phase) -> None:
        """The phase's accesses begin."""
        self._moments[phase.number] = Moments(phase, len(self._log))

    def after_metadata(self, phase: Phase) -> None:
        """Those of its metadata end."""
        self._moments[phase.number].prepared = len(self._log)

    def before_replay(self, phase: Phase) -> None:
        """PRE_REPLAY."""
        moments = self._moments[phase.number]
        moments.at[SharedReadEnds.PRE_REPLAY] = self._now()
        moments.launched = len(self._log)

    def after_replay(self, phase: Phase) -> None:
        """IN_REPLAY, where the graph's marker was reached in this replay; and POST_REPLAY."""
        moments = self._moments[phase.number]
        marker = phase.marker
        if marker is not None and isinstance(marker.event, SimulatedEvent) and marker.event.bound is not None:
            moments.at[SharedReadEnds.IN_REPLAY] = marker.event.bound
        moments.at[SharedReadEnds.POST_REPLAY] = self._now()
        moments.last = len(self._log)

    def verdict(self, case: Case, candidates: Sequence[SharedReadEnds]) -> CaseVerdict:
        """Return what was found so far."""
        verdict = CaseVerdict(case, "happens-before")
        buffers = sorted(self._names.values())
        for claim, found in sorted(self._found.items(), key=lambda entry: entry[0].scope):
            verdict.claims.append(found.judge(claim, candidates, buffers))
            verdict.missed += found.missed
        verdict.missed = list(dict.fromkeys(verdict.missed))
        verdict.hazards = [
            {
                "kind": hazard.kind,
                "buffer": hazard.buffer,
                "rows": list(hazard.rows),
                "first": hazard.first,
                "second": hazard.second,
                "missing": hazard.missing,
            }
            for hazard in self._device.hazards
            if OWN not in hazard.first and OWN not in hazard.second
        ]
        verdict.unheard = self._planted.unheard(self._lasting)
        return verdict

    def _hear(self, op: Op, reads: Sequence[Touch], writes: Sequence[Touch]) -> None:
        for buffer_id, rows in (*reads, *writes):
            name = self._names.get(buffer_id)
            if name is not None and not op.lane.name.startswith("schedule"):
                self._log.append((op, name, frozenset(rows)))

    def _now(self) -> Record:
        event = self._device.Event()
        event.record()
        if event.bound is None:
            msg = "an event that was recorded is bound"
            raise RuntimeError(msg)
        return event.bound

    def _run_step(self, work: ForwardWork, params: SharedBuffer | None) -> StepResult:
        self._log.clear()
        self._moments.clear()
        self._phases.begin(self)
        result = self._run(work, params)
        self._end = self._now()
        self._mode = work.mode
        for moments in self._moments.values():
            self._look_at(moments)
        return result

    def _look_at(self, moments: Moments) -> None:
        phase = moments.phase
        claim = phase.claim
        declared = phase.backend.shared_read_ends(claim.mode)
        claimed = not (claim.mode is ForwardMode.EXTEND and declared is SharedReadEnds.PRE_REPLAY) or (
            phase.backend.has_extend_snapshot(phase.batch)
        )
        resolved = resolve(declared, phase.marker).ends if claimed else SharedReadEnds.UNKNOWN
        found = self._found.setdefault(claim, Findings(declared, resolved))
        found.resolved = min(found.resolved, resolved)
        found.last |= reads_last(self._engine, phase)
        at = dict(moments.at)
        if not claimed:
            del at[SharedReadEnds.PRE_REPLAY]
        found.take(at, moments.accesses(self._log), self._end)

    def _apply(self, step: int, reader: LastReader, forward_stream: Stream) -> Verdict:
        owner = reader.last_shared_read_mailbox
        verdict = type(self._barrier).apply(self._barrier, step, reader, forward_stream)
        own = [one for one in self._moments.values() if one.phase.runner.shared_read_done is owner]
        fence = judge_fence(verdict, [one.phase for one in own], self._mode)
        found = self._found.setdefault(fence.claim, Findings(fence.published, fence.ends, whole_step=True, last=True))
        found.resolved = min(found.resolved, fence.ends)
        if fence.reason is not None:
            found.reasons.add(fence.reason.value)
        found.take(self._moments_of(fence, verdict), self._log, self._end)
        found.compare(
            [(f"{one.phase.claim} at {ends.name}", one.at[ends]) for one in self._moments.values() for ends in one.at],
            self._log,
        )
        return verdict

    def _moments_of(self, fence: StepFence, verdict: Verdict) -> dict[SharedReadEnds, Record]:
        """Where the fence of a whole step stands: at the very record that the schedule stream was bound to."""
        if fence.phase is None or verdict.done is None:
            return {}
        at = self._moments[fence.phase.number].at
        return {fence.ends: at[fence.ends]} if fence.ends in at else {}
