"""Serves a few requests on a simulated device, small enough for a test to do it often."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.engine.engine import Engine
from sglang_fence.engine.options import EngineOptions
from sglang_fence.engine.requests import Request, SamplingParams
from sglang_fence.models.loading import ModelOptions
from sglang_fence.observe.summary import ModeSummary, Summary

if TYPE_CHECKING:
    from sglang_fence.device.simulated.accesses import Hazard

WINDOW = 16
SMALL = EngineOptions(
    model=ModelOptions(context_len=96, sliding_window=WINDOW),
    max_running=4,
    chunk=64,
    page_size=4,
)
"""Short windows and pages, so that result processing writes shared buffers in most steps."""


@dataclass(frozen=True)
class Run:
    """What a run left behind."""

    device: SimulatedDevice
    engine: Engine
    summary: Summary
    outputs: list[list[int]]
    steps: int

    @property
    def total(self) -> ModeSummary:
        return self.summary.total()

    @property
    def decodes(self) -> ModeSummary:
        return self.summary.by_mode()["decode"]

    @property
    def hazards(self) -> list[Hazard]:
        return self.device.hazards


class Serve(Protocol):
    """Serves requests; ``changes`` are made to :data:`SMALL`."""

    def __call__(self, device: SimulatedDevice | None = None, **changes: Any) -> Run: ...  # noqa: ANN401 - any option


def _serve(device: SimulatedDevice | None = None, **changes: Any) -> Run:  # noqa: ANN401 - any option
    device = SimulatedDevice() if device is None else device
    summary = Summary()
    engine = Engine(device, replace(SMALL, **changes), [summary])
    # Three share a beginning, so that the prefix cache rewrites rows; every second one samples.
    requests = [
        Request(
            index,
            [7, 8, 9, 10] * 3 + [index // 3, index],
            SamplingParams(max_new_tokens=14 + index, temperature=0.7 * (index % 2), seed=index),
        )
        for index in range(6)
    ]
    for request in requests:
        engine.check(request)
    scheduler = engine.serve(requests)
    assert all(request.error is None for request in requests)
    return Run(device, engine, summary, [request.output for request in requests], scheduler.steps)


@pytest.fixture
def serve() -> Serve:
    """Serve six requests."""
    return _serve
