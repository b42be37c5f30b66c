"""``ForwardWork``: one step's batch, as the scheduler hands it to a runner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from sglang_fence.device.buffers import SharedBuffer
from sglang_fence.memory.request_pool import upload

if TYPE_CHECKING:
    from sglang_fence.contract import ForwardMode
    from sglang_fence.device.protocol import DeviceModule, Stream


@dataclass(slots=True, eq=False)
class ForwardWork:
    """What the host knows of the step, and its packed inputs on the device.

    ``inputs`` was allocated on the schedule stream and is read by the forward, so it must outlive the forward (R12):
    whoever launches the work keeps it in the step record. Layout, int64 ``[1, n]``: rows and lengths of the lines; an
    extend adds each line's last token index, then tokens, positions and lines of the new tokens.
    """

    step: int
    mode: ForwardMode
    rows: tuple[int, ...]
    kv_lens: tuple[int, ...]
    """Tokens of each request after this forward."""
    query_lens: tuple[int, ...]
    """New tokens of each request."""
    pages: tuple[int, ...]
    """Pages that the lines read or write."""
    inputs: SharedBuffer
    written: tuple[int, ...] | None = None
    """Those of ``pages`` that it writes; None: any of them. Steps of two streams may share what neither writes."""

    @property
    def lines(self) -> int:
        """Requests."""
        return len(self.rows)

    @property
    def new_tokens(self) -> int:
        """Tokens computed."""
        return sum(self.query_lens)


def pack_decode(rows: tuple[int, ...], kv_lens: tuple[int, ...]) -> torch.Tensor:
    """Pack a decode's inputs; its tokens come through the relay."""
    return torch.tensor([[*rows, *kv_lens]], dtype=torch.int64)


def pack_extend(
    rows: tuple[int, ...],
    kv_lens: tuple[int, ...],
    query_lens: tuple[int, ...],
    tokens: list[int],
) -> torch.Tensor:
    """Pack an extend's inputs; ``tokens`` are the new tokens of all lines, one after the other."""
    last: list[int] = []
    positions: list[int] = []
    lines: list[int] = []
    end = 0
    for line, (new, whole) in enumerate(zip(query_lens, kv_lens, strict=True)):
        end += new
        last.append(end - 1)
        positions.extend(range(whole - new, whole))
        lines.extend([line] * new)
    return torch.tensor([[*rows, *kv_lens, *last, *tokens, *positions, *lines]], dtype=torch.int64)


def upload_inputs(device: DeviceModule, name: str, packed: torch.Tensor, owner: Stream) -> SharedBuffer:
    """Copy packed inputs to the device on the current stream, which owns the block: freeing it frees it there."""
    buffer = SharedBuffer(device, name, upload(device, packed), owner=owner)
    device.launch("upload_batch", lambda: None, writes=((buffer, (0,)),))
    return buffer
