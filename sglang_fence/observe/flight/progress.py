"""``Progress``: what the host knows of the device without asking it."""

from __future__ import annotations

from sglang_fence.observe.numbers import InHand
from sglang_fence.observe.record import NO_STEP

NEVER = -1
"""``Progress.settled_ns`` before the device was first known to be done with all."""


class Progress(InHand):
    """Plain numbers, each written by one assignment on the serving thread and read from any.

    Step numbers are those since the serving began: :meth:`settle` forgets them, since who serves on may count from 0.
    """

    __slots__ = ("awaited", "in_order", "settled_ns")

    def __init__(self) -> None:
        self.awaited = NO_STEP
        """The step whose results the host waits for right now."""
        self.in_hand = NO_STEP
        """The newest step whose results the host has: its forward is over."""
        self.timed = NO_STEP
        """The newest step whose timing events were read: its forward is over."""
        self.in_order = True
        """Whether one step's end means that every older one has ended: false where steps run on several streams."""
        self.settled_ns = NEVER
        """When the device was last known to be done with every step, on the probe's clock."""

    def settle(self, now_ns: int) -> None:
        """The device is done with every step so far."""
        self.settled_ns = now_ns
        self.awaited = self.in_hand = self.timed = NO_STEP
