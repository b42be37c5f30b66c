"""How long a window is held open: on CUDA kernels that spin, on the simulated device a cost by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sglang_fence.device.cuda_spinning import cuda_spinner
from sglang_fence.device.simulated.costs import CostTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglang_fence.device.protocol import DeviceModule

WIDE_US = 300.0
"""Behind the event of a candidate: in this time the other stream has overwritten the buffer."""

NARROW_US = 40.0
"""Before each kernel that reads a buffer on trial: enough for one on a side stream to come after the overwriting."""

HOLD_US = 3000.0
"""Before a replay whose marker is awaited. Meanwhile the host launches what records it, and enqueues the wait:
not the whole forward, whose eager parts may take it longer. See :mod:`~sglang_fence.audit.launches`.
"""


@dataclass(frozen=True, slots=True)
class Delays:
    """Bodies of kernels that take their time."""

    wide: Callable[[], object]
    narrow: Callable[[], object]
    hold: Callable[[], object]


def simulated_costs() -> CostTable:
    """Return the built-in costs, and those of the audit's own kernels; a late reader and what is kept cost nothing."""
    free = {f"audit_{name}": 0.0 for name in ("late_reader", "keep", "prepare", "restore", "hold")}
    return CostTable(kernels={**free, "audit_delay": WIDE_US, "audit_poison": 1.0})


def simulated_delays() -> Delays:
    """Return delays for a device with :func:`simulated_costs`: their length is the table's."""

    def nothing() -> None:
        """Take time alone."""

    return Delays(nothing, nothing, nothing)


def cuda_delays(device: DeviceModule) -> Delays:
    """Return kernels that spin."""
    spin = cuda_spinner(device)
    return Delays(spin(WIDE_US), spin(NARROW_US), spin(HOLD_US))


def delays_for(device: DeviceModule) -> Delays:
    """Return delays for either device."""
    return simulated_delays() if device.virtual_seconds() is not None else cuda_delays(device)
