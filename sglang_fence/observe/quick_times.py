"""``QuickTimes``: where device times go that the compiled part has read, slack and wait of fine steps."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable, Sequence

    from sglang_fence.contract import ForwardMode
    from sglang_fence.observe.device_times import DeviceTimes
    from sglang_fence.observe.flight.progress import Progress
    from sglang_fence.observe.ledger import Ledger
    from sglang_fence.observe.timing import TimingDevice

logger = logging.getLogger(__name__)


class CompiledSteps(Protocol):
    """The part of the compiled steps that takes device times."""

    @property
    def pending(self) -> int:
        """Steps whose times wait to be read."""

    def take_times(
        self,
        streams: tuple[int, int, int],
        events: tuple[tuple[int, ...], ...],
        offsets_us: tuple[float, float],
        settle: Callable[[list[tuple[Any, int, float, float]], int], None],
        fail: Callable[[str, int], None],
        library: str,
        in_place: bool,  # noqa: FBT001 - the compiled one takes no names
        /,
    ) -> None:
        """Take device times.

        Args:
            streams: handles of the forward, the schedule and the observer's stream.
            events: handles of END, RELEASED and WAIT, for each step that may be in flight.
            offsets_us: how late a copied moment reads while the schedule stream waits, and while it computes.
            settle: is called with what was read and isn't added up: what a step was like, its number, slack and wait in
                µs; and with the number of the newest step that was read.
            fail: is called with the call that failed, and the driver's number.
            library: the driver's.
            in_place: whether durations are added up where the steps are counted, if they are as most are, and no more.
        """

    def give_up(self, *, pending: bool) -> int:
        """Return how many steps went without their times since the last call; with all that is ``pending``."""


class Alike(Protocol):
    """What steps are that are alike: where they are counted, and as what."""

    mode: ForwardMode
    backend_name: str
    cell: Any


IN_FLIGHT = 16
"""Quick steps whose times may wait to be read: a batch of them, and those that are launched meanwhile. Few, so that
their events stay in the caches."""


def make_events(device: TimingDevice) -> list[list[Any]]:
    """Return END, RELEASED and WAIT of each step that may be in flight."""
    return [[device.timed_event() for _ in range(3)] for _ in range(IN_FLIGHT)]


def count_unread(steps: CompiledSteps, unresolved: Counter[str], cause: str | None) -> None:
    """Count the steps that went without their times.

    Args:
        steps: takes them.
        unresolved: where they are counted.
        cause: what those are counted as that still wait, and are given up; None: they may still be read.
    """
    left = 0 if cause is None else steps.pending
    lost = steps.give_up(pending=cause is not None) - left
    if cause is not None and left:
        unresolved[cause] += left
    if lost:
        unresolved["in_flight"] += lost


class QuickTimes:
    """Adds up what was read, and keeps the events.

    Args:
        ledger: where it is added up.
        progress: where the newest step whose times were read is noted.
        events: of :func:`make_events`; they live as long as their handles are in use.
    """

    def __init__(self, ledger: Ledger, progress: Progress, events: Sequence[Sequence[Any]] = ()) -> None:
        self._ledger, self._progress, self._events = ledger, progress, events
        self._failures = 0

    def take(self, steps: CompiledSteps, times: DeviceTimes, forward: Any, library: str) -> None:  # noqa: ANN401 - a stream
        """Let ``steps`` take device times by these events, through the driver's ``library``.

        Raises:
            OSError: that can't be loaded, or lacks a function.
        """
        streams: tuple[Any, Any, Any] = (forward, times.schedule, times.observer)
        steps.take_times(
            (streams[0].handle, streams[1].handle, streams[2].handle),
            tuple(tuple(event.handle for event in row) for row in self._events),
            (times.offsets.marker_copy_us, times.offsets.marker_copy_busy_us),
            self.settle,
            self.fail,
            library,
            self._ledger.adds_durations_alone,
        )

    def settle(self, found: Iterable[tuple[Alike, int, float, float]], newest: int) -> None:
        """Count durations in: what a step was like, its number, slack and wait in µs; a negative slack is clamped.

        Step ``newest`` was read last, and is one of these or was counted in already.
        """
        add = self._ledger.add_slack_and_wait
        for like, _, slack_us, wait_us in found:
            if slack_us < 0.0:
                self._ledger.clamps["slack"] += 1
            add(like.cell, like.mode, like.backend_name, max(0.0, slack_us), max(0.0, wait_us))
        self._progress.timed = newest

    def fail(self, call: str, status: int) -> None:
        """A call failed, and no more times are taken this way: count it, and say so once."""
        self._failures += 1
        errors = self._ledger.health.errors
        errors["drain"] = errors.get("drain", 0) + 1
        if self._failures == 1:
            logger.error("sglang-fence: %s failed (%d); repeated steps go on without device times", call, status)
