"""Which device is opened, and what is refused before one is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from sglang_fence.device import open_device
from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("asked", [None, True, False])
def test_the_simulated_device_checks_the_order_of_accesses_unless_told_not_to(*, asked: bool | None) -> None:
    device = open_device("simulated", check_hazards=asked)
    assert isinstance(device, SimulatedDevice)
    if asked is False:
        with pytest.raises(ValueError, match="check_hazards=True"):
            device.watch(None)
    else:
        device.watch(None)


def test_cuda_refuses_what_the_simulated_device_alone_has(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(ConfigError, match=r"--check-hazards: only the simulated device"):
        open_device("auto", check_hazards=True)
    with pytest.raises(ConfigError, match=r"--costs .*: only the simulated device"):
        open_device("cuda", tmp_path / "costs.json")
