"""Shared buffers: tensors that two streams touch, and whose accesses a device may check."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from sglang_fence.device.protocol import DeviceModule, Stream


class SharedBuffer:
    """A tensor whose first dimension is the rows that kernels declare.

    ``req_to_token``, the full-to-SWA mapping, the relay and the KV pools are shared buffers for the life of the
    runtime. The packed inputs of a step are one for the life of the step: made with an ``owner`` stream, such a buffer
    reports its end as a free on that stream, since from then on its block may be handed out and overwritten (R12).
    """

    __slots__ = ("__weakref__", "_device", "_tensor", "id", "name")

    def __init__(self, device: DeviceModule, name: str, tensor: torch.Tensor, *, owner: Stream | None = None) -> None:
        self._device = device
        self._tensor = tensor
        self.name = name
        self.id = device.register_buffer(self)
        if owner is not None:
            weakref.finalize(self, device.freed, self.id, owner).atexit = False

    @property
    def tensor(self) -> torch.Tensor:
        """The tensor; inside a kernel only if the launch declared it."""
        self._device.check_access(self)
        return self._tensor

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return int(self._tensor.shape[0])

    def __repr__(self) -> str:
        return f"SharedBuffer({self.name!r}, {tuple(self._tensor.shape)})"
