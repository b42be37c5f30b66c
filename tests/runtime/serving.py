"""Serve prompts in this process on the simulated device, and keep all there is to see."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.engine.engine import Engine
from sglang_fence.engine.options import EngineOptions
from sglang_fence.engine.requests import Request
from sglang_fence.models.loading import ModelOptions
from sglang_fence.observe.summary import Summary

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sglang_fence.device.protocol import Access
    from sglang_fence.device.simulated.accesses import Hazard
    from sglang_fence.device.simulated.costs import CostTable
    from tests.runtime.prompts import Prompt


class CountingDevice(SimulatedDevice):
    """Counts launches by kernel; those inside a graph once, when they are captured."""

    def __init__(self, costs: CostTable | None = None) -> None:
        super().__init__(costs)
        self.launches: Counter[str] = Counter()

    def launch(
        self,
        name: str,
        body: Callable[[], object],
        *,
        reads: Sequence[Access] = (),
        writes: Sequence[Access] = (),
    ) -> None:
        """Count, and launch."""
        self.launches[name] += 1
        super().launch(name, body, reads=reads, writes=writes)


@dataclass(frozen=True, slots=True)
class Served:
    """A run."""

    requests: list[Request]
    steps: int
    retractions: int
    cached_tokens: int
    summary: Summary
    hazards: list[Hazard]
    launches: Counter[str]

    @property
    def outputs(self) -> list[list[int]]:
        """Generated tokens, a list a request."""
        return [request.output for request in self.requests]

    @property
    def fences(self) -> dict[str, int]:
        """Steps by what the fence did."""
        return dict(self.summary.total().fence)


def serve(
    prompts: Sequence[Prompt],
    *,
    costs: CostTable | None = None,
    sliding_window: int | None = None,
    **options: Any,  # noqa: ANN401 - whatever EngineOptions takes
) -> Served:
    """Serve all of ``prompts``; none may fail."""
    device, summary = CountingDevice(costs), Summary()
    engine = Engine(device, EngineOptions(model=ModelOptions(sliding_window=sliding_window), **options), [summary])
    requests = [Request(index, list(prompt.ids), prompt.params) for index, prompt in enumerate(prompts)]
    for request in requests:
        engine.check(request)
        assert request.error is None
    scheduler = engine.serve(requests)
    assert all(request.finished for request in requests)
    return Served(
        requests,
        scheduler.steps,
        scheduler.retractions,
        engine.memory.cached_tokens,
        summary,
        device.hazards,
        device.launches,
    )
