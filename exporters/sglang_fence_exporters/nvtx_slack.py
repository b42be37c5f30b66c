"""``SlackTrack``: slack as an NVTX counter, put back to the moments at which it arose."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sglang_fence_exporters.nvtx_domain import Counter, Domain

STEPS = 1024
"""Steps whose barrier is remembered. The probe has far fewer in flight."""
BATCH = 64
"""Values that are handed over at once: a call of the library costs about 3 µs, however many it takes."""


class SlackTrack:
    """A step's slack is known some steps later, when its device times are read; its barrier tells where it belongs.

    So the tool's clock is read at the barrier, and the value is handed over with that time. Memory is of fixed size.
    """

    def __init__(self, domain: Domain, counter: Counter) -> None:
        self._now = domain.get_timestamp
        self._counter = counter
        self._times = array("q", bytes(8 * STEPS))
        self._steps = array("q", [-1] * STEPS)
        self._values = array("d", bytes(8 * BATCH))
        self._stamps = array("q", bytes(8 * BATCH))
        self._waiting = 0

    def barrier(self, step: int) -> None:
        """Remember when the barrier of ``step`` stood."""
        place = step % STEPS
        self._steps[place] = step
        self._times[place] = self._now()

    def add(self, step: int, slack_us: float) -> None:
        """Take the slack of ``step``.

        Args:
            step: its number.
            slack_us: in µs.
        """
        place = step % STEPS
        stamp = self._times[place] if self._steps[place] == step else 0
        if stamp == 0:
            # The tool tells no time, or the barrier is forgotten. Better late than at the wrong place.
            self._counter.sample(slack_us)
            return
        waiting = self._waiting
        self._values[waiting] = slack_us
        self._stamps[waiting] = stamp
        self._waiting = waiting + 1
        if self._waiting == BATCH:
            self.flush()

    def flush(self) -> None:
        """Hand over what waits."""
        waiting, self._waiting = self._waiting, 0
        if waiting:
            self._counter.batch_submit(self._values[:waiting], self._stamps[:waiting])
