"""``StepResult``: a step's tokens on their way to the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from sglang_fence.device.protocol import DeviceModule, Event
    from sglang_fence.observe.probe import StepProbe


@dataclass(slots=True)
class StepResult:
    """Sampled tokens on their way to the host."""

    done: Event
    """Recorded behind all work of the step's forward; ``tokens`` may be read once it completed."""
    tokens: torch.Tensor
    """int64 ``[lines, most]``, host memory."""
    counts: torch.Tensor | None = None
    """int64 ``[lines]``, host memory: how many of them count; None: all."""
    drafts: int = 0
    """How many drafts each line had."""

    def sequences(self) -> list[list[int]]:
        """Return each line's new tokens. Only once ``done`` completed."""
        rows: list[list[int]] = self.tokens.tolist()
        if self.counts is None:
            return rows
        return [row[:count] for row, count in zip(rows, self.counts.tolist(), strict=True)]


@dataclass(slots=True)
class Outbox:
    """Device tensors of a step's results, handed from the kernel that makes them to the copy."""

    tokens: torch.Tensor | None = None
    """int64 ``[lines, most]``."""
    counts: torch.Tensor | None = None
    """int64 ``[lines]``."""


def copy_out(device: DeviceModule, probe: StepProbe, outbox: Outbox, lines: int, most: int) -> StepResult:
    """Copy a step's tokens to the host, and record the event behind all its forward work.

    Args:
        device: launches on the current (forward) stream.
        probe: may lend the event, so that one record serves both.
        outbox: filled by a kernel that is enqueued already. Counts are expected where ``most`` is above 1.
        lines: requests.
        most: tokens a line at the most.
    """
    pinned = device.torch_device.type != "cpu"
    tokens = torch.empty((lines, most), dtype=torch.int64, pin_memory=pinned)
    counts = torch.empty((lines,), dtype=torch.int64, pin_memory=pinned) if most > 1 else None

    def body() -> None:
        for host, made in ((tokens, outbox.tokens), (counts, outbox.counts)):
            if host is not None and made is not None:
                host.copy_(made, non_blocking=True)

    device.launch("copy_out", body)
    done = (probe.end_event() if probe.timing else None) or device.Event()
    done.record()
    return StepResult(done, tokens, counts, most - 1)
