"""``Counted`` and ``InHand``: numbers that the compiled part writes in place, where it is there.

They are bases of what has such a number among other things; without the compiled part they are plain classes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence import native

if TYPE_CHECKING:

    class Counted:
        """Where steps are counted."""

        __slots__ = ()
        steps: int

    class InHand:
        """What the host has of the device's results."""

        __slots__ = ()
        in_hand: int

elif native.part(native.QUICK).usable:
    from sglang_fence.native._quick import Counted, InHand
else:

    class Counted:
        """Where steps are counted."""

        __slots__ = ("steps",)

    class InHand:
        """What the host has of the device's results."""

        __slots__ = ("in_hand",)


__all__ = ["Counted", "InHand"]
