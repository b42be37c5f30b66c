"""A live engine on the simulated device that can be audited."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.audit.auditing import engine_options
from sglang_fence.audit.delays import simulated_costs, simulated_delays
from sglang_fence.audit.device import AuditDevice
from sglang_fence.audit.state import DeviceState
from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.engine.engine import Engine
from sglang_fence.engine.requests import Request, SamplingParams
from sglang_fence.models.loading import EMBEDDED

if TYPE_CHECKING:
    import torch

    from sglang_fence.audit.cases import Case


class Live:
    """One engine, and everything that it keeps."""

    def __init__(self, case: Case) -> None:
        self.device = AuditDevice(SimulatedDevice(simulated_costs(), check_hazards=False), simulated_delays())
        self.engine = Engine(self.device, engine_options(case, EMBEDDED))
        self.device.take_up()

    def contents(self) -> dict[str, torch.Tensor]:
        """Return copies of all of it."""
        self.device.synchronize()
        return DeviceState(self.engine, self.device.buffers).now()


def fifty() -> list[Request]:
    """Make fifty requests."""
    return [
        Request(
            number,
            [(7 * number + position) % 250 + 1 for position in range(3 + number % 11)],
            SamplingParams(max_new_tokens=4 + number % 5),
        )
        for number in range(50)
    ]


def tokens(engine: Engine) -> list[list[int]]:
    """Serve the fifty."""
    requests = fifty()
    for request in requests:
        engine.check(request)
    engine.serve(requests)
    assert [request.error for request in requests] == [None] * 50
    return [request.output for request in requests]
