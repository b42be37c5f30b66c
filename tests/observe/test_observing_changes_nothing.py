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
from sglang_fence.observe.sampling import Sampling

if TYPE_CHECKING:
    from sglang_fence.device.simulated.accesses import Hazard

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


def serve(costs: CostTable, observers: list[Observer], **changes: Any) -> Outcome:  # noqa: ANN401 - any option
    device = SimulatedDevice(costs)
    model = ModelOptions(context_len=64, sliding_window=8)
    options = EngineOptions(model=model, max_running=3, chunk=32, page_size=4, **changes)
    engine = Engine(device, options, observers, sampling=Sampling(timing_every=1, trace_ratio=0.5, trace_coarse=True))
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
    alone = serve(CostTable.random(seed), [], fence=fence, graph=graph)
    assert watched == alone
    assert bool(watched[1]) == (fence == "off")
    assert listener.heard >= set(HOOKS) - {"run_ended"}
