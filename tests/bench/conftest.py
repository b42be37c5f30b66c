"""A result of each kind, made by a short run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sglang_fence.bench import fencing, runtime
from sglang_fence.bench.random_model import ModelSize
from sglang_fence.device.simulated.device import SimulatedDevice

if TYPE_CHECKING:
    from sglang_fence.bench.fence_result import FenceResult
    from sglang_fence.bench.runtime_result import RuntimeResult

PLAN = runtime.RuntimePlan(ModelSize(64, 1, 128), "float32", batches=(1, 3), prompt_tokens=5, new_tokens=6, rounds=1)


@pytest.fixture(scope="session")
def fence_result() -> FenceResult:
    """Measure a small sweep in virtual time."""
    sweep = fencing.Sweep(
        [100, 250, 1000], [0, 300], 40, closer_decode_us=250, closer_schedule_us=[20, 40], rounds=1, block_us=1_000
    )
    return fencing.measure(SimulatedDevice(), sweep)


@pytest.fixture(scope="session")
def runtime_result() -> RuntimeResult:
    """Serve a tiny Llama with the runtime and with Transformers."""
    return runtime.measure(SimulatedDevice(check_hazards=False), PLAN)
