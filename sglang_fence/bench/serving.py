"""Blocks that serve: what the hazard checker costs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.engine.engine import Engine
from sglang_fence.engine.requests import Request, SamplingParams

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglang_fence.engine.options import EngineOptions


def checker(options: EngineOptions, *, steps: int) -> dict[str, Callable[[], float]]:
    """Blocks that serve ``steps`` decode steps on the simulated device, with the hazard checker and without.

    They give seconds of processor time, which other programs on the machine disturb less than the wall's.
    """

    def block(*, check_hazards: bool) -> float:
        engine = Engine(SimulatedDevice(check_hazards=check_hazards), options)
        longest = engine.model.context_len - 8
        asked = [
            Request(index, [index % 250, 7, 11], SamplingParams(max_new_tokens=longest))
            for index in range(options.max_running * -(-steps // longest))
        ]
        for request in asked:
            engine.check(request)
        started = time.process_time()
        engine.serve(asked)
        return time.process_time() - started

    return {"without": lambda: block(check_hazards=False), "with": lambda: block(check_hazards=True)}
