"""Serves prompts on the simulated device and keeps all that observers hear."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.engine.engine import Engine
from sglang_fence.engine.options import EngineOptions
from sglang_fence.engine.requests import Request, SamplingParams
from sglang_fence.models.loading import ModelOptions
from sglang_fence.observe.summary import Summary
from sglang_fence.testing.recording import RecordingObserver

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sglang_fence.device.simulated.costs import CostTable
    from sglang_fence.observe.flight.ring import FlightRing
    from sglang_fence.observe.observer import Observer
    from sglang_fence.observe.sampling import Sampling
    from sglang_fence.observe.trace import StepTrace
    from sglang_fence.testing.records import FrozenStepRecord


def traceparent(index: int) -> str:
    """Return what a request comes with."""
    return f"00-{index + 1:032x}-{index + 1:016x}-01"


@dataclass
class Watched:
    """An engine with its observers."""

    engine: Engine
    heard: RecordingObserver
    summary: Summary
    outputs: list[list[int]]

    @property
    def finished(self) -> dict[int, FrozenStepRecord]:
        """Finished steps by number."""
        found = {record.step: record for record in self.heard.finished}
        assert len(found) == len(self.heard.finished), "a step finished twice"
        return found

    @property
    def timed(self) -> list[int]:
        """Steps whose device times were taken, in order."""
        return [step for step, record in sorted(self.finished.items()) if record.timed]

    @property
    def traces(self) -> list[StepTrace]:
        return [trace for (trace,) in self.heard.of("step_traced")]  # type: ignore[misc] # what this hook gets

    def serve(self, count: int = 6, new_tokens: int = 12) -> None:
        """Serve some short prompts."""
        asked = [
            Request(
                index,
                [5, 6, 7, 8, index],
                SamplingParams(max_new_tokens=new_tokens + index % 3),
                traceparent=traceparent(index),
            )
            for index in range(count)
        ]
        for request in asked:
            self.engine.check(request)
            assert request.error is None
        self.engine.serve(asked)
        self.outputs += [request.output for request in asked]


def watch(
    sampling: Sampling | None,
    *,
    device: SimulatedDevice | None = None,
    costs: CostTable | None = None,
    observers: Sequence[Observer] = (),
    ring: FlightRing | None = None,
    **options: Any,  # noqa: ANN401 - whatever EngineOptions takes
) -> Watched:
    """Make an engine that is watched."""
    heard, summary = RecordingObserver(), Summary()
    chosen: dict[str, Any] = {"max_running": 3, "chunk": 32, "page_size": 4, **options}
    engine = Engine(
        SimulatedDevice(costs) if device is None else device,
        EngineOptions(model=ModelOptions(context_len=128), **chosen),
        [summary, heard, *observers],
        sampling=sampling,
        ring=ring,
    )
    return Watched(engine, heard, summary, [])
