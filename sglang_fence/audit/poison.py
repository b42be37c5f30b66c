"""Poison: other values that are valid all the same, written by another stream at the moment of an event.

A late read of them changes the result and never faults: each value is one that the buffer might well hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

from sglang_fence.audit.device import OWN

if TYPE_CHECKING:
    from sglang_fence.audit.device import Reader
    from sglang_fence.device.protocol import DeviceModule, Event, Stream
    from sglang_fence.memory.kv_pool import PagedKV

OtherValues = Callable[[torch.Tensor], torch.Tensor]
"""From a buffer's contents to others, of the same shape and type, every element valid and no row as it was."""


def other_rows(values: torch.Tensor) -> torch.Tensor:
    """For any buffer: each row takes the contents of the next one, and what is the same all over stays so."""
    return values.roll(-1, 0)


def shifted(values: torch.Tensor, first: int, count: int, by: int) -> torch.Tensor:
    """For indices: move each by ``by`` among ``first`` … ``first + count − 1``, and what lay below in there."""
    return (values - first + by) % count + first


def other_values(kv: PagedKV, vocabulary: int) -> dict[str, OtherValues]:
    """Return what the buffers of the runtime are overwritten with, by name; for others there is :func:`other_rows`.

    Args:
        kv: slots lie on its pages 1 …; page 0 is padding's.
        vocabulary: tokens.
    """
    size, pages = kv.page_size, kv.allocator.pages
    found: dict[str, OtherValues] = {
        # By pages, so that pages that were read whole are other pages; and by one slot, for those that aren't.
        "req_to_token": lambda slots: shifted(slots, size, pages * size, size * max(1, pages // 3) + 1),
        "token_history": lambda tokens: shifted(tokens, 0, vocabulary, 1 + vocabulary // 3),
    }
    if kv.swa is not None:
        count = kv.swa.allocator.pages
        found["full_to_swa"] = lambda mapped: shifted(mapped, 1, count, max(1, count // 3))
    return found


class Poisoner:
    """Overwrites one buffer behind an event, and puts it back.

    Args:
        device: launches; the forward stream is its current one.
        adversary: the stream that overwrites.
        reader: of the buffer.
        others: what it is overwritten with.
        rows: overwrite these alone; None: all.
    """

    def __init__(
        self,
        device: DeviceModule,
        adversary: Stream,
        reader: Reader,
        others: OtherValues,
        rows: Sequence[int] | None = None,
    ) -> None:
        self._device = device
        self._adversary = adversary
        self._reader = reader
        self.buffer = reader.buffer
        self._others = others
        self._rows = rows
        like = self.buffer.tensor
        self._true, self._other = torch.empty_like(like), torch.empty_like(like)
        self.numbers = torch.zeros(2, dtype=torch.int64, device=like.device)
        """What a late reader makes of the true contents, and of the others."""
        self.struck = False

    def prepare(self) -> None:
        """Keep what is true now, and work out the others; on the forward stream, before the event."""
        buffer, rows = self.buffer, self._rows

        def body() -> None:
            true, other = self._true.copy_(buffer.tensor), self._other
            if rows is None:
                other.copy_(self._others(true))
            else:
                other.copy_(true)
                for row in rows:
                    other[row] = self._others(true)[row]
            self.numbers[:1] = self._reader.condense(true)
            self.numbers[1:] = self._reader.condense(other)

        self._device.launch(f"{OWN}prepare", body, reads=((buffer, range(buffer.rows)),))

    def strike(self, event: Event) -> None:
        """Overwrite as soon as ``event`` fires, whose record was issued already."""
        buffer = self.buffer
        self._adversary.wait_event(event)
        with self._device.stream(self._adversary):
            self._device.launch(
                f"{OWN}poison",
                lambda: buffer.tensor.copy_(self._other),
                writes=((buffer, range(buffer.rows)),),
            )
        self.struck = True

    def heal(self) -> None:
        """Put back what was true, on the forward stream; what comes there later reads nothing else."""
        if not self.struck:
            return
        buffer = self.buffer
        self._device.current_stream().wait_stream(self._adversary)
        self._device.launch(
            f"{OWN}restore",
            lambda: buffer.tensor.copy_(self._true),
            writes=((buffer, range(buffer.rows)),),
        )
        self.struck = False
