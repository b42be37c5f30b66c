"""Kernels of known length: on CUDA they spin, on the simulated device the cost table says how long they take."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from sglang_fence.device.simulated.costs import CostTable
from sglang_fence.device.simulated.device import SimulatedDevice

if TYPE_CHECKING:
    from sglang_fence.bench.overlap import StepShape
    from sglang_fence.device.protocol import DeviceModule

Spinner = Callable[[float], Callable[[], None]]
"""From µs to a kernel's body that takes so long."""

_TRIAL_CYCLES = 2_000_000


def simulated(shape: StepShape) -> tuple[SimulatedDevice, Spinner]:
    """Make a simulated device on which the loop's kernels take what ``shape`` says."""
    kernels = {
        "bench_reads": shape.reads_us,
        "bench_compute": shape.compute_us,
        "bench_schedule": shape.schedule_us,
    }
    return SimulatedDevice(CostTable(kernels=kernels), check_hazards=False), lambda _: lambda: None


def cuda_spinner(device: DeviceModule) -> Spinner:
    """Measure how fast the device's clock is, and return what makes kernels for it."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(_TRIAL_CYCLES)  # noqa: SLF001 - nothing public keeps a stream busy without memory
    device.synchronize()
    start.record()
    torch.cuda._sleep(_TRIAL_CYCLES)  # noqa: SLF001 - as above
    end.record()
    device.synchronize()
    cycles_per_us = _TRIAL_CYCLES / (1e3 * start.elapsed_time(end))

    def spinner(us: float) -> Callable[[], None]:
        cycles = round(us * cycles_per_us)
        return lambda: torch.cuda._sleep(cycles)  # noqa: SLF001 - as above

    return spinner
