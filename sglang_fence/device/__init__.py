"""Devices: the protocol, CUDA, and the simulated one. :func:`open_device` picks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.errors import ConfigError, DeviceUnavailableError

if TYPE_CHECKING:
    from pathlib import Path

    from sglang_fence.device.protocol import DeviceModule

DEVICES = ("auto", "cuda", "simulated")


def open_device(name: str, costs: Path | None = None, *, check_hazards: bool | None = None) -> DeviceModule:
    """Open a device.

    Args:
        name: one of :data:`DEVICES`; ``auto`` is CUDA where there is one.
        costs: a cost table for the simulated device.
        check_hazards: whether the simulated device checks the order of shared accesses; None: it does, and no other
            device is asked to.

    Raises:
        DeviceUnavailableError: CUDA was asked for and isn't here.
        ConfigError: an unknown name, or a cost table or a check for a device that has none.
        CostTableError: the cost table can't be used.
    """
    if name not in DEVICES:
        msg = f"--device {name}: known are {', '.join(DEVICES)}"
        raise ConfigError(msg)
    if name != "simulated":
        import torch  # noqa: PLC0415 - slow, and not needed to refuse a name

        if torch.cuda.is_available():
            if costs is not None:
                msg = f"--costs {costs}: only the simulated device takes a cost table; add --device simulated"
                raise ConfigError(msg)
            if check_hazards:
                msg = "--check-hazards: only the simulated device knows the order of accesses; add --device simulated"
                raise ConfigError(msg)
            from sglang_fence.device.cuda import CudaDevice  # noqa: PLC0415

            return CudaDevice()
        if name == "cuda":
            msg = "--device cuda: PyTorch sees no CUDA device here; use --device simulated, or leave the option out"
            raise DeviceUnavailableError(msg)
    from sglang_fence.device.simulated.costs import CostTable  # noqa: PLC0415
    from sglang_fence.device.simulated.device import SimulatedDevice  # noqa: PLC0415

    table = CostTable() if costs is None else CostTable.load(costs)
    return SimulatedDevice(table, check_hazards=check_hazards is not False)
