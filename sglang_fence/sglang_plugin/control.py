"""The control file: timing, tracing and profiling of a live server, changed by writing JSON into a file.

A daemon thread looks at the file about once a second, and does no more than set two numbers that the next step goes by,
and begin a capture where one is asked for.
"""

from __future__ import annotations

import json
import logging
import threading
from typing import TYPE_CHECKING, Protocol

from sglang_fence.sglang_plugin.profiling import seconds
from sglang_fence.sglang_plugin.switches import count, ratio

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

logger = logging.getLogger(__name__)

INTERVAL_S = 1.0
KEYS = dict.fromkeys(("timing_every", "trace_ratio", "profile_seconds")).keys()
"""What the file may say. The last begins a capture each time that the file changes, so take it out afterwards."""


class Adjustable(Protocol):
    """What is changed."""

    timing_every: int
    trace_ratio: float


class ControlFile:
    """Applies what the file says, each time it changes.

    Args:
        path: the file; it need not be there yet.
        adjustable: what is changed.
        changed: called after each change, with no argument.
        profile: begins a capture of so many seconds, and returns at once; None where nothing can be captured.
        interval_s: seconds between two looks.
    """

    def __init__(
        self,
        path: Path,
        adjustable: Adjustable,
        changed: Callable[[], None],
        *,
        profile: Callable[[float], None] | None = None,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._path = path
        self._adjustable = adjustable
        self._changed = changed
        self._profile = profile
        self._interval_s = interval_s
        self._seen: tuple[int, int] | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sglang-fence-control", daemon=True)
        self._thread.start()

    def look(self) -> None:
        """Apply the file if it has changed since the last look. What can't be used is warned of, once a change."""
        try:
            status = self._path.stat()
        except OSError:
            return
        seen = (status.st_mtime_ns, status.st_size)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._apply(json.loads(self._path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            logger.warning("sglang-fence: %s can't be used, and nothing is changed: %s", self._path, error)

    def _apply(self, asked: object) -> None:
        if not isinstance(asked, dict) or not asked.keys() <= KEYS:
            msg = f"write an object with one or more of {', '.join(KEYS)}"
            raise ValueError(msg)
        every = count(asked.get("timing_every", self._adjustable.timing_every))
        share = ratio(asked.get("trace_ratio", self._adjustable.trace_ratio))
        length_s = seconds(asked["profile_seconds"]) if "profile_seconds" in asked else None
        if length_s is not None and self._profile is None:
            msg = "there is no CUDA profiler here that could be told to begin"
            raise ValueError(msg)
        self._adjustable.timing_every, self._adjustable.trace_ratio = every, share
        self._changed()
        logger.info("sglang-fence: timing_every %d, trace_ratio %g, by %s", every, share, self._path)
        if length_s is not None and self._profile is not None:
            self._profile(length_s)

    def close(self) -> None:
        """End the thread."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(self._interval_s):
            self.look()
