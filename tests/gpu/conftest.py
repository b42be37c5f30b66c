"""One scenario, two devices: what is shown on the simulated device has to hold on a GPU, where there is one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
import torch

from sglang_fence.device.simulated.costs import CostTable
from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.models.served import ServedModel

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglang_fence.device.protocol import DeviceModule
    from sglang_fence.models.served import Activations

DELAY_US = 20_000
_CYCLES = 2_000 * DELAY_US
"""At 2 GHz, above what the chip runs at: the delay on a GPU is at least :data:`DELAY_US`, or nearly."""


class Opened:
    """A device with a delay kernel, and with all that the tests launch loaded."""

    def __init__(self, name: str) -> None:
        self.device: DeviceModule
        if name == "cuda":
            from sglang_fence.device.cuda import CudaDevice  # noqa: PLC0415 - not everywhere

            self.device = CudaDevice()
            self._warm_up()
        else:
            self.device = SimulatedDevice(CostTable(kernels={"delay": DELAY_US, "lm_head": DELAY_US}))
        self.name = name

    @property
    def on_gpu(self) -> bool:
        return self.name == "cuda"

    def delay(self) -> None:
        """Keep the current stream busy for about :data:`DELAY_US`."""
        self.device.launch("delay", self.sleep)

    def sleep(self) -> None:
        """Be the body of a delay."""
        if self.on_gpu:
            torch.cuda._sleep(_CYCLES)

    def tensor(self, *values: float) -> torch.Tensor:
        made = torch.tensor(values, device=self.device.torch_device)
        self.device.synchronize()
        return made

    def slow_head(self, patch: pytest.MonkeyPatch) -> None:
        """Make each forward's last kernel take a delay; the simulated device's cost table does so already."""
        head = ServedModel.head

        def slow(model: ServedModel, acts: Activations, lines: torch.Tensor | None) -> None:
            self.sleep()
            head(model, acts, lines)

        patch.setattr(ServedModel, "head", slow)

    def _warm_up(self) -> None:
        """Load kernels now: a first launch may wait for what is running, and hide what a test looks for."""
        values = torch.zeros(4, device=self.device.torch_device)
        values.add_(1).copy_(values.clone())
        values.fill_(2)
        torch.cuda._sleep(1)
        torch.cuda.synchronize()


@pytest.fixture(params=["simulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def opened(request: pytest.FixtureRequest) -> Opened:
    """Open each device in turn."""
    return Opened(request.param)


@pytest.fixture
def gpu() -> Opened:
    """Open the GPU, for what the simulated device has no counterpart of."""
    return Opened("cuda")


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Say what was measured, also where a test passes."""

    def say(line: str) -> None:
        with capsys.disabled():
            sys.stdout.write(f"\n  {line}\n")

    return say
