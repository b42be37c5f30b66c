"""``QuickTimes``: where device times go that the compiled part has read, slack and wait of fine steps."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sglang_fence.contract import ForwardMode
    from sglang_fence.observe.flight.progress import Progress
    from sglang_fence.observe.ledger import Ledger

logger = logging.getLogger(__name__)


class Alike(Protocol):
    """What steps are that are alike: where they are counted, and as what."""

    mode: ForwardMode
    backend_name: str
    cell: Any


class QuickTimes:
    """Adds up what was read, and keeps the events.

    Args:
        ledger: where it is added up.
        progress: where the newest step whose times were read is noted.
        events: whatever has to live as long as their handles are in use.
    """

    def __init__(self, ledger: Ledger, progress: Progress, events: object = ()) -> None:
        self._ledger, self._progress, self._events = ledger, progress, events
        self._failures = 0

    def settle(self, found: Iterable[tuple[Alike, int, float, float]]) -> None:
        """Count durations in: what a step was like, its number, slack and wait in µs; a negative slack is clamped."""
        number = None
        add = self._ledger.add_slack_and_wait
        for like, number, slack_us, wait_us in found:  # noqa: B007 - the last one is the newest
            if slack_us < 0.0:
                self._ledger.clamps["slack"] += 1
            add(like.cell, like.mode, like.backend_name, max(0.0, slack_us), max(0.0, wait_us))
        if number is not None:
            self._progress.timed = number

    def fail(self, call: str, status: int) -> None:
        """A call failed, and no more times are taken this way: count it, and say so once."""
        self._failures += 1
        errors = self._ledger.health.errors
        errors["drain"] = errors.get("drain", 0) + 1
        if self._failures == 1:
            logger.error("sglang-fence: %s failed (%d); repeated steps go on without device times", call, status)
