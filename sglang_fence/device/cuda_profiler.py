"""The CUDA profiler's switch, for tools that capture between its two calls."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch

from sglang_fence.errors import DeviceUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable


class Profiler(NamedTuple):
    """Begins and ends a capture, on whichever thread it is called. Without a tool, both calls do nothing."""

    start: Callable[[], None]
    stop: Callable[[], None]


def cuda_profiler() -> Profiler:
    """Return the switch for the current device.

    Raises:
        DeviceUnavailableError: there is no CUDA device.
    """
    if not torch.cuda.is_available():
        msg = "there is no CUDA device here, and so no CUDA profiler to tell: profile on a machine with a GPU"
        raise DeviceUnavailableError(msg)
    device = torch.cuda.current_device()
    return Profiler(partial(_on, device, torch.cuda.profiler.start), partial(_on, device, torch.cuda.profiler.stop))


def _on(device: int, call: Callable[[], None]) -> None:
    # A thread that has used no device yet would make a context on the first one.
    with torch.cuda.device(device):
        call()
