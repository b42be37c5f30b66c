"""Kernels and host work of known length: they spin, or the simulated device's cost table says how long they take."""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING

from sglang_fence.device.simulated.costs import CostTable
from sglang_fence.device.simulated.device import SimulatedDevice

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglang_fence.bench.overlap import StepShape
    from sglang_fence.device.cuda_spinning import Spinner
    from sglang_fence.device.protocol import DeviceModule

HOST_WORK = "bench_prepare"
"""The host call that stands for the scheduler's own work."""


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
