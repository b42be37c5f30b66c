"""What an end costs: how long after each candidate moment a step goes on, without anything planted that takes time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.audit.phases import Listener, Phase, Phases
from sglang_fence.contract import SharedReadEnds

if TYPE_CHECKING:
    from sglang_fence.audit.cases import Claim
    from sglang_fence.audit.verdicts import ClaimVerdict
    from sglang_fence.device.buffers import SharedBuffer
    from sglang_fence.device.protocol import DeviceModule
    from sglang_fence.engine.engine import Engine
    from sglang_fence.observe.timing import TimedEvent
    from sglang_fence.runners.step_result import StepResult
    from sglang_fence.runners.work import ForwardWork

_WARM_UP = 2
"""Steps of each claim that don't count."""

Remaining = dict["Claim", dict[SharedReadEnds, float]]
"""By claim and end: µs from that moment to the end of the step, on average. UNKNOWN, the end itself, has 0."""


class Timing(Listener):
    """Times the moments of each step of an engine while it serves; waits for the device behind each.

    Args:
        engine: to listen to.
        device: that it runs on.
    """

    def __init__(self, engine: Engine, device: DeviceModule) -> None:
        self._device = device
        self._observer = device.observer_stream("audit_clock")
        self._worker = engine.worker
        self._run = engine.worker.run
        self._phases = Phases(engine)
        self._step: dict[tuple[Claim, SharedReadEnds], TimedEvent] = {}
        """Of several forwards that make one claim the last, since a fence would have to wait for it."""
        self._seen: dict[tuple[Claim, SharedReadEnds], list[float]] = {}
        vars(engine.worker)["run"] = self._run_step

    def remove(self) -> None:
        """Leave the engine as it was."""
        self._phases.remove()
        del vars(self._worker)["run"]

    def before_replay(self, phase: Phase) -> None:
        """PRE_REPLAY."""
        self._take(phase, SharedReadEnds.PRE_REPLAY)

    def after_replay(self, phase: Phase) -> None:
        """POST_REPLAY; IN_REPLAY by a stream that waits for the marker, which isn't timed itself."""
        self._take(phase, SharedReadEnds.POST_REPLAY)
        if phase.marker is not None:
            self._observer.wait_event(phase.marker.event)
            event = self._device.timed_event()
            event.record(self._observer)
            self._step[phase.claim, SharedReadEnds.IN_REPLAY] = event

    def remaining(self) -> Remaining:
        """Return the averages."""
        found: Remaining = {}
        for (claim, ends), times in self._seen.items():
            counted = times[_WARM_UP:] or times
            found.setdefault(claim, {SharedReadEnds.UNKNOWN: 0.0})[ends] = sum(counted) / len(counted)
        return found

    def _take(self, phase: Phase, ends: SharedReadEnds) -> None:
        event = self._device.timed_event()
        event.record(self._device.current_stream())
        self._step[phase.claim, ends] = event

    def _run_step(self, work: ForwardWork, params: SharedBuffer | None) -> StepResult:
        self._step.clear()
        self._phases.begin(self)
        result = self._run(work, params)
        end = self._device.timed_event()
        end.record(self._device.current_stream())
        self._device.synchronize()
        for key, event in self._step.items():
            us = event.elapsed_us(end)
            if us is not None:
                self._seen.setdefault(key, []).append(us)
        return result


def set_cost(verdict: ClaimVerdict, remaining: Remaining) -> None:
    """Say what the resolved end costs against the tightest sound one, where that is earlier and both were timed."""
    tightest, times = verdict.tightest, remaining.get(verdict.claim, {})
    if tightest is not None and tightest < verdict.resolved and {tightest, verdict.resolved} <= times.keys():
        verdict.cost_us = times[tightest] - times[verdict.resolved]
