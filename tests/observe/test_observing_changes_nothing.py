"""The same run, watched and not: same virtual time, same hazards, same tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_fence.device.simulated.costs import CostTable
from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.engine.engine import Engine
from sglang_fence.engine.options import EngineOptions
from sglang_fence.engine.requests import Request, SamplingParams
from sglang_fence.models.loading import ModelOptions
from sglang_fence.observe.observer import HOOKS, Observer
from sglang_fence.observe.probe import StepProbe

if TYPE_CHECKING:
    from sglang_fence.device.simulated.accesses import Hazard
    from sglang_fence.observe.observer import Observers

Outcome = tuple[float, list["Hazard"], int, list[list[int]]]


class Listener(Observer):
    """Listens to every hook."""

    def __init__(self) -> None:
        self.heard: set[str] = set()


def _listen(hook: str) -> Any:  # noqa: ANN401 - a method of whatever signature
    def heard(self: Listener, *_: object) -> None:
        self.heard.add(hook)

    return heard


for _hook in HOOKS:
    setattr(Listener, _hook, _listen(_hook))


def untimed(observers: Observers, *_: object) -> StepProbe:
    """Make a probe that asks the device for nothing."""
    return StepProbe(observers)


def serve(costs: CostTable, observers: list[Observer], **changes: Any) -> Outcome:  # noqa: ANN401 - any option
    device = SimulatedDevice(costs)
    model = ModelOptions(context_len=64, sliding_window=8)
    engine = Engine(device, EngineOptions(model=model, max_running=3, chunk=32, page_size=4, **changes), observers)
    requests = [Request(index, [5, 6, 7, 8, index], SamplingParams(max_new_tokens=9)) for index in range(4)]
    for request in requests:
        engine.check(request)
    engine.serve(requests)
    return device.now_us, device.hazards, device.hazard_count, [request.output for request in requests]


@pytest.mark.parametrize("fence", ["fine", "coarse", "off"])
@pytest.mark.parametrize("graph", ["full", "breakable", "off"])
@given(seed=st.integers(0, 1_000_000))
@settings(max_examples=4, deadline=None)
def test_watching_a_run_changes_neither_its_times_nor_its_hazards(fence: str, graph: str, seed: int) -> None:
    listener = Listener()
    watched = serve(CostTable.random(seed), [listener], fence=fence, graph=graph)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sglang_fence.engine.engine.StepProbe", untimed)
        alone = serve(CostTable.random(seed), [], fence=fence, graph=graph)
    assert watched == alone
    assert bool(watched[1]) == (fence == "off")
    assert listener.heard >= {"step_started", "range_started", "range_ended", "barrier_applied", "step_finished"}
