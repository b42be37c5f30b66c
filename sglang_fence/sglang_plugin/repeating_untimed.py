"""``Untimed``: what the compiled class does about device times, and the one in Python doesn't."""

from __future__ import annotations

from typing import Any


class Untimed:
    """Takes no device times."""

    compiled = False
    """Whether it can also take device times. Where it can't, the general hooks do."""
    times_taken = False
    """Whether it does."""
    pending = 0
    """Steps whose device times wait to be read."""

    def take_times(self, *_: Any) -> None:  # noqa: ANN401 - see CompiledSteps
        """Take device times, as :class:`~sglang_fence.observe.quick_times.CompiledSteps` says.

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
