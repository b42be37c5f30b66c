"""What one step's observation costs the host, part by part, in nanoseconds. No device: pure Python time."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING

from sglang_fence.contract import FallbackReason, FenceKind, ForwardMode, SharedReadEnds
from sglang_fence.observe.observer import Observer, Observers
from sglang_fence.observe.probe import StepProbe
from sglang_fence.observe.record import Phase
from sglang_fence.observe.summary import Summary

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglang_fence.observe.record import StepRecord

_STEPS = 2_000


@dataclass(frozen=True, slots=True)
class _Fine:
    kind = FenceKind.FINE
    reason: FallbackReason | None = None
    ends = SharedReadEnds.IN_REPLAY


class Ranges(Observer):
    """Listens to ranges and does nothing: what the calls alone cost."""

    def range_started(self, name: str, step: int) -> None:
        """Nothing."""

    def range_ended(self, name: str, step: int) -> None:
        """Nothing."""


class Records(Observer):
    """Listens to finished steps and does nothing."""

    def step_finished(self, record: StepRecord) -> None:
        """Nothing."""


def parts() -> dict[str, Callable[[], float]]:
    """Blocks that give ns a step for the probe with different observers, device timing left out."""
    return {
        "no observer": lambda: _block(StepProbe(Observers())),
        "finished steps": lambda: _block(StepProbe(Observers([Records()]))),
        "summary": lambda: _block(StepProbe(Observers([Summary()]))),
        "ranges": lambda: _block(StepProbe(Observers([Ranges()]))),
    }


def _block(probe: StepProbe) -> float:
    verdict = _Fine()
    ends = SharedReadEnds.IN_REPLAY
    phase = Phase(ForwardMode.DECODE, "target", "native", ends, ends, None)
    started = perf_counter_ns()
    for step in range(_STEPS):
        probe.step_started(step, ForwardMode.DECODE, "native", 8, 8)
        probe.resolved(phase)
        for name in ("out_graph_metadata", "replay", "publish"):
            with probe.range(name):
                pass
        probe.launched()
        probe.before_wait(None)
        probe.after_wait(verdict)
        probe.drain()
    return (perf_counter_ns() - started) / _STEPS
