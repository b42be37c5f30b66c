"""Whether the pools fit into memory, asked before they are made."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch

from sglang_fence.errors import CapacityError

if TYPE_CHECKING:
    from sglang_fence.device.protocol import DeviceModule


def check_fits(device: DeviceModule, what: str, size: int) -> None:
    """Refuse pools that the device's memory can't hold.

    Args:
        device: where they would be.
        what: the options that decide about their size, for the message.
        size: bytes.

    Raises:
        CapacityError: there isn't as much memory (CUDA: free, elsewhere: at all).
    """
    if device.torch_device.type == "cuda":
        there = torch.cuda.mem_get_info(device.torch_device)[0]
    else:
        there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if size > there:
        msg = f"{what}: the pools would take {size / 2**30:,.1f} GiB, and there are {there / 2**30:,.1f}; ask for less"
        raise CapacityError(msg)
