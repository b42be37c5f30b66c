"""``Untimed``: what the compiled class does about device times, and the one in Python doesn't."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglang_fence.sglang_plugin.likeness import Likeness


class Untimed:
    """Takes no device times."""

    compiled = False
    """Whether it can also take device times. Where it can't, the general hooks do."""
    times_taken = False
    """Whether it does."""
    pending = 0
    """Steps whose device times wait to be read."""

    def take_times(
        self,
        streams: tuple[int, int, int],
        events: tuple[tuple[int, ...], ...],
        offsets_us: tuple[float, float],
        settle: Callable[[list[tuple[Likeness, int, float, float]], int], None],
        fail: Callable[[str, int], None],
        library: str,
        in_place: bool = False,  # noqa: FBT001, FBT002 - the compiled one takes no names
    ) -> None:
        """Take device times; only the compiled class does.

        Args:
            streams: handles of the forward, the schedule and the observer's stream.
            events: handles of END, RELEASED and WAIT, for each step that may be in flight.
            offsets_us: how late a copied moment reads while the schedule stream waits, and while it computes.
            settle: is called with what was read and isn't added up: what a step was like, its number, slack and wait in
                µs; and with the number of the newest step that was read.
            fail: is called with the call that failed, and the driver's number.
            library: the driver's.
            in_place: whether durations are added up where the steps are counted, if they are as most are, and no more.

        Raises:
            NotImplementedError: this isn't the compiled class.
        """
        raise NotImplementedError

    def drain(self, limit: int) -> int:
        """Read the times of up to ``limit`` steps that the device is past; return of how many."""
        del limit
        return 0

    def give_up(self, *, pending: bool) -> int:
        """Return how many steps went without their times since the last call; with all that is ``pending``."""
        del pending
        return 0
