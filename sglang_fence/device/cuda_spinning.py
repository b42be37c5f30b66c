"""Kernels that keep a CUDA stream busy for a known time, without touching memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from sglang_fence.device.protocol import DeviceModule

Spinner = Callable[[float], Callable[[], None]]
"""From µs to a kernel's body that takes so long."""

_TRIAL_CYCLES = 2_000_000
_WARM_UP_CYCLES = 50_000_000


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
