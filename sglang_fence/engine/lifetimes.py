"""``StepLifetimes``: nothing that a forward uses is freed before the forward ends (R12).

The coarse fence used to give this for free: a tensor of the schedule stream could only be overwritten by schedule work
that waited for the whole forward. Behind a fine fence its block would be handed out while the forward still reads it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sglang_fence.device.protocol import Event


class StepLifetimes:
    """Holds each step's tensors until its forward-end event has completed."""

    def __init__(self) -> None:
        self._held: deque[tuple[Event, tuple[object, ...]]] = deque()

    def hold(self, forward_end: Event, *things: object) -> None:
        """Keep ``things`` until ``forward_end``, recorded behind the step's last forward work, is done."""
        self._held.append((forward_end, things))

    def reap(self) -> None:
        """Let go of what ended forwards used. Never blocks."""
        while self._held and self._held[0][0].query():
            self._held.popleft()

    def __len__(self) -> int:
        return len(self._held)
