"""What the exporter's thread needs of whatever it takes steps to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from sglang_fence.observe.trace import StepTrace

PAUSE_S = 50e-6
"""A real sleep, however short: giving the interpreter lock up without one, this thread would mostly take it again."""


class Route(Protocol):
    """Where the exporter's thread takes steps to. All but :meth:`hurry` and :meth:`abort` is called on that thread.

    What becomes of a step may be read from any thread.
    """

    poll_s: float
    """How often it looks for steps."""

    @property
    def lost(self) -> int:
        """Steps that were taken and are known to be lost."""
        ...

    @property
    def settled(self) -> int:
        """Steps that are where they were meant to go, as far as we can see, or that no spans were wanted of."""
        ...

    @property
    def malformed_links(self) -> int:
        """Requests, counted in each of their steps, whose ``traceparent`` could not be read."""
        ...

    def look(self) -> None:
        """See to what has to be done every so often."""
        ...

    def has_room(self, trace: StepTrace) -> bool:
        """Whether the step can be taken without losing any of it."""
        ...

    def take(self, trace: StepTrace) -> str | None:
        """Take a step.

        Returns:
            The identifier of its trace, 32 hexadecimal digits; None where it has none.

        Raises:
            Exception: it isn't one that spans can be made of.
        """
        ...

    def hurry(self) -> None:
        """Serving is over: no more pauses. Waits, within a bound of its own, for what has yet to start."""
        ...

    def close(self) -> None:
        """Send what waits. May take as long as the collector lets it, unless aborted."""
        ...

    def abort(self, within_s: float) -> None:
        """Give up on what is being sent, and have :meth:`close` return soon. Returns at once."""
        ...
