"""Kernels and host work of known length: they spin, or the simulated device's cost table says how long they take."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import TYPE_CHECKING

import torch

from sglang_fence.device.simulated.costs import CostTable
from sglang_fence.device.simulated.device import SimulatedDevice

if TYPE_CHECKING:
    from sglang_fence.bench.overlap import StepShape
    from sglang_fence.device.protocol import DeviceModule

Spinner = Callable[[float], Callable[[], None]]
"""From µs to a kernel's body that takes so long."""

HOST_WORK = "bench_prepare"
"""The host call that stands for the scheduler's own work."""

_TRIAL_CYCLES = 2_000_000
_WARM_UP_CYCLES = 50_000_000


def simulated(shape: StepShape) -> tuple[SimulatedDevice, Spinner]:
    """Make a simulated device on which the loop's kernels take what ``shape`` says."""
    kernels = {
        "bench_reads": shape.reads_us,
        "bench_compute": shape.compute_us,
        "bench_schedule": shape.schedule_us,
        "bench_after": shape.after_us,
    }
    costs = CostTable(kernels=kernels, host={HOST_WORK: shape.prepare_us})
    return SimulatedDevice(costs, check_hazards=False), lambda _: lambda: None


def host_work(device: DeviceModule, us: float) -> Callable[[], None]:
    """Return what keeps the host busy for ``us``: by its clock, or on the simulated device as its cost table says."""
    if us <= 0:
        return lambda: None
    if device.virtual_seconds() is not None:
        return lambda: device.host(HOST_WORK)
    nanoseconds = round(us * 1e3)

    def spin() -> None:
        until = perf_counter_ns() + nanoseconds
        while perf_counter_ns() < until:
            pass

    return spin


def cuda_spinner(device: DeviceModule) -> Spinner:
    """Measure how fast the device's clock is, and return what makes kernels for it."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    # The first is long, so that the clock has risen to what it is under load.
    torch.cuda._sleep(_WARM_UP_CYCLES)  # noqa: SLF001 - nothing public keeps a stream busy without memory
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
