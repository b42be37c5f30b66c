"""What one step's observation costs the host, part by part, in nanoseconds. No device: pure Python time."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING

from sglang_fence.contract import FallbackReason, FenceKind, ForwardMode, SharedReadEnds
from sglang_fence.observe.flight.ring import FlightRing
from sglang_fence.observe.ledger import Ledger
from sglang_fence.observe.observer import Observer, Observers
from sglang_fence.observe.probe import StepProbe
from sglang_fence.observe.record import Phase
from sglang_fence.observe.sampling import Sampling

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglang_fence.observe.record import StepRecord

_STEPS = 2_000


@dataclass(frozen=True, slots=True)
class _Fine:
    kind = FenceKind.FINE
    reason: FallbackReason | None = None
    published: tuple[SharedReadEnds, int] | None = (SharedReadEnds.IN_REPLAY, 0)


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


class Calls:
    """The calls that the runtime makes for one decode step, in their order, as the runtime makes them."""

    def __init__(self, probe: StepProbe) -> None:
        self._probe = probe
        self._verdict = _Fine()
        ends = SharedReadEnds.IN_REPLAY
        self._phase = Phase(ForwardMode.DECODE, "target", "native", ends, ends, None)
        self._forward = object()
        self._prepare_next = probe.around_preparation(_nothing)
        self._run = probe.around("launch", _nothing)
        self._prepare_metadata = probe.around("out_graph_metadata", _nothing)
        self._replay = probe.around("replay", _nothing)
        self._publish = probe.around("publish", _nothing)
        self._apply_barrier = probe.around("barrier", _nothing)
        self._process_results = probe.around("process_results", _nothing)

    def work(self, step: int) -> None:
        """The step without the probe: what is left when its calls are taken out."""
        self._prepare_next(step)
        self._run(step)
        self._prepare_metadata(step)
        self._replay(step)
        self._publish(step)
        self._apply_barrier(step)
        self._process_results(step)

    def observed(self, step: int) -> None:
        """The step with it."""
        self._prepare_next(step)
        probe = self._probe
        if probe.on:
            probe.step_started(step, ForwardMode.DECODE, "native", 8, 8)
        if probe.timing:
            probe.forward_started(self._forward)
        self._run(step)
        self._prepare_metadata(step)
        if probe.on:
            probe.resolved(self._phase)
        self._replay(step)
        self._publish(step)
        if probe.timing and probe.recording:
            probe.launched()
        self._apply_barrier(step)
        left = probe.timing and probe.reads_end(self._verdict, None, self._forward)
        if probe.recording:
            probe.at_barrier(self._verdict, self._forward)
        if left:
            probe.before_wait()
        if probe.on:
            probe.after_wait(self._verdict)
        self._process_results(step)
        if probe.on and probe.pending:
            probe.drain()


def parts() -> dict[str, Callable[[], float]]:
    """Blocks that give ns a step for the probe with different observers, device timing left out."""
    makers: dict[str, Callable[[], StepProbe]] = {
        "no observer": lambda: StepProbe(Observers()),
        "finished steps": lambda: StepProbe(Observers([Records()])),
        "ledger": lambda: StepProbe(Observers([Ledger()])),
        "ledger, flight recorder": lambda: StepProbe(Observers([Ledger()]), ring=FlightRing()),
        "ledger, 1 % of steps traced": lambda: StepProbe(Observers([Ledger()]), sampling=Sampling(trace_ratio=0.01)),
        "ranges": lambda: StepProbe(Observers([Ranges()])),
    }
    return {name: _blocks(make) for name, make in makers.items()}


def _blocks(make: Callable[[], StepProbe]) -> Callable[[], float]:
    def block() -> float:
        bare, observed = Calls(StepProbe(Observers())), Calls(make())
        with_probe = _time(observed.observed)
        return with_probe - _time(bare.work)

    return block


def _time(step: Callable[[int], None]) -> float:
    started = perf_counter_ns()
    for number in range(_STEPS):
        step(number)
    return (perf_counter_ns() - started) / _STEPS


def _nothing(_step: int) -> None:
    """Stand for a phase of the step."""
