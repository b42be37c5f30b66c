"""Device times of repeated steps: the events that the compiled part records, and where what it read of them goes.

Only slack and wait of a fine step are taken there. A step whose forward's start is timed as well, and the one before
it, at whose end the gap begins, are left to the general hooks: see :attr:`~.choosing.Choosing.due_beyond_slack`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, cast

from sglang_fence.device.cuda_timing import CudaObserverStream, HandledEvent, handle_of
from sglang_fence.observe.probe import IN_FLIGHT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sglang_fence.device.cuda import CudaStream
    from sglang_fence.observe.device_times import DeviceTimes
    from sglang_fence.observe.flight.progress import Progress
    from sglang_fence.observe.ledger import Cell, Ledger
    from sglang_fence.sglang_plugin.likeness import Likeness
    from sglang_fence.sglang_plugin.repeating import Repeating

logger = logging.getLogger(__name__)

LIBRARY = "libcuda.so.1"


class RepeatedTimes:
    """Keeps the events, and adds up what was read.

    Args:
        ledger: where it is added up.
        progress: where the newest step whose times were read is noted.
        events: END, RELEASED and WAIT of each step in flight; whoever records them has their handles alone.
    """

    def __init__(
        self,
        ledger: Ledger,
        progress: Progress,
        events: tuple[tuple[HandledEvent, HandledEvent, HandledEvent], ...] = (),
    ) -> None:
        self._ledger, self._progress, self._events = ledger, progress, events
        self._failures = 0

    def settle(self, found: Iterable[tuple[Likeness, int, float, float]]) -> None:
        """Count durations in: what a step was like, its number, slack and wait in µs; a negative slack is clamped."""
        number = None
        for like, number, slack_us, wait_us in found:  # noqa: B007 - the last one is the newest
            cell = cast("Cell", like.cell)
            if slack_us < 0.0:
                self._ledger.clamps["slack"] += 1
            cell.slack.add(max(0.0, slack_us))
            cell.wait.add(max(0.0, wait_us))
        if number is not None:
            self._progress.timed = number

    def fail(self, call: str, status: int) -> None:
        """A call failed, and no more times are taken this way: count it, and say so once."""
        self._failures += 1
        errors = self._ledger.health.errors
        errors["drain"] = errors.get("drain", 0) + 1
        if self._failures == 1:
            logger.error("sglang-fence: %s failed (%d); repeated steps go on without device times", call, status)


def take_times(
    current: Repeating, times: DeviceTimes, forward: CudaStream, ledger: Ledger, progress: Progress
) -> RepeatedTimes | None:
    """Let repeated steps be timed, where the compiled part is there and the driver is known by name.

    Args:
        current: recognises them.
        times: the general hooks' streams and offsets.
        forward: the forward stream.
        ledger: where durations are added up.
        progress: what is known of the device.

    Raises:
        OSError: the driver's library lacks a function.
    """
    observer, schedule = times.observer, cast("CudaStream", times.schedule)
    if not current.compiled or not isinstance(observer, CudaObserverStream):
        return None
    made = [[times.device.timed_event() for _ in range(3)] for _ in range(IN_FLIGHT)]
    events = [(one, two, three) for one, two, three in made if handle_of(one) is not None]
    if not events:
        return None
    kept = cast("tuple[tuple[HandledEvent, HandledEvent, HandledEvent], ...]", tuple(events))
    repeated = RepeatedTimes(ledger, progress, kept)
    current.take_times(
        (forward.handle, schedule.handle, observer.handle),
        tuple(tuple(event.handle for event in row) for row in kept),
        (times.offsets.marker_copy_us, times.offsets.marker_copy_busy_us),
        repeated.settle,
        repeated.fail,
        LIBRARY,
    )
    return repeated
