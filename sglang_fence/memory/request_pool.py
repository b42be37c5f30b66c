"""``ReqToTokenPool``: one row a running request, from token position to KV slot."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from sglang_fence.device.buffers import SharedBuffer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sglang_fence.device.protocol import DeviceModule


@dataclass(slots=True)
class RowUpdates:
    """Scattered writes to ``req_to_token``, collected on the host and launched as one kernel."""

    rows: list[int] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)

    def add(self, row: int, first: int, slots: Sequence[int]) -> None:
        """Write ``slots`` into ``row`` from position ``first`` on."""
        self.rows.extend([row] * len(slots))
        self.columns.extend(range(first, first + len(slots)))
        self.slots.extend(slots)

    def __bool__(self) -> bool:
        return bool(self.rows)


class ReqToTokenPool:
    """Rows of ``req_to_token``; allocation is the host's, writes are the schedule stream's.

    ``req_to_token`` is ``int64[max_running + 1, context_len]``: the KV slot of each position of each running request.
    Row 0 belongs to padding and stays zero.
    """

    def __init__(self, device: DeviceModule, *, max_running: int, context_len: int) -> None:
        self._device = device
        self.context_len = context_len
        self.max_running = max_running
        table = torch.zeros((max_running + 1, context_len), dtype=torch.int64, device=device.torch_device)
        self.req_to_token = SharedBuffer(device, "req_to_token", table)
        self.history: SharedBuffer | None = None
        self._free = list(range(max_running, 0, -1))

    def keep_history(self) -> SharedBuffer:
        """Keep the tokens of each row too: ``token_history``, int64 as ``req_to_token``, written at admission."""
        if self.history is None:
            self.history = SharedBuffer(self._device, "token_history", torch.zeros_like(self.req_to_token.tensor))
        return self.history

    def write_history(self, rows: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Write the known tokens of newly admitted rows, on the current stream; nothing where no history is kept."""
        if self.history is None or not rows:
            return
        at = [row for row, tokens in rows for _ in tokens]
        columns = [column for _, tokens in rows for column in range(len(tokens))]
        values = [token for _, tokens in rows for token in tokens]
        packed = upload(self._device, torch.tensor([at, columns, values], dtype=torch.int64))
        history = self.history

        def body() -> None:
            history.tensor[packed[0], packed[1]] = packed[2]

        self._device.launch("write_history", body, writes=((history, sorted({row for row, _ in rows})),))

    @property
    def available(self) -> int:
        """How many rows are free."""
        return len(self._free)

    def allocate(self) -> int | None:
        """Take a row, or None when all are in use. Rows are handed out last freed first."""
        return self._free.pop() if self._free else None

    def free(self, row: int) -> None:
        """Give a row back. Nothing is written: the next owner overwrites it."""
        self._free.append(row)

    def write(self, kernel: str, updates: RowUpdates) -> None:
        """Launch one kernel, called ``kernel``, that writes ``updates`` on the current stream."""
        if not updates:
            return
        packed = torch.tensor([updates.rows, updates.columns, updates.slots], dtype=torch.int64)
        on_device = upload(self._device, packed)
        table = self.req_to_token

        def body() -> None:
            rows, columns, slots = on_device
            table.tensor[rows, columns] = slots

        self._device.launch(kernel, body, writes=((table, sorted(set(updates.rows))),))


def upload(device: DeviceModule, values: torch.Tensor) -> torch.Tensor:
    """Copy a host tensor to the device on the current stream, without waiting for it.

    On CUDA the copy goes through pinned memory of PyTorch's caching host allocator, which hands a block out again only
    when the copies that read it are done: the host can't refill it too early.
    """
    if device.torch_device.type == "cpu":
        return values
    return values.pin_memory().to(device.torch_device, non_blocking=True)
