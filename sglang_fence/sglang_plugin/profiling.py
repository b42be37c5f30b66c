"""Profiling a live server for some seconds: begun and ended by a thread, so that steps pay nothing for it."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sglang_fence.device.cuda_profiler import Profiler

logger = logging.getLogger(__name__)

MOST_S = 3600.0
"""Longer than that nobody could look at."""


def seconds(raw: float) -> float:
    """Return how long to profile.

    Raises:
        ValueError: it is no length of time, or too long a one.
    """
    value = float(raw)
    if not 0.0 < value <= MOST_S:
        msg = f'"profile_seconds": write more than 0, up to {MOST_S:g}'
        raise ValueError(msg)
    return value


class TimedProfile:
    """Tells the profiler to begin, and some seconds later to end."""

    def __init__(self, profiler: Profiler) -> None:
        self._profiler = profiler
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, length_s: float) -> None:
        """Begin at once, and return. While one is under way, another is refused with a warning."""
        if self._thread is not None and self._thread.is_alive():
            logger.warning("sglang-fence: a capture is under way; another can be asked for when it is over")
            return
        self._thread = threading.Thread(target=self._run, args=(length_s,), name="sglang-fence-profile", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End early, if one is under way."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, length_s: float) -> None:
        try:
            self._profiler.start()
            logger.info("sglang-fence: the profiler was told to begin, for %g s", length_s)
            try:
                self._ended.wait(length_s)
            finally:
                self._profiler.stop()
            logger.info("sglang-fence: the profiler was told to end")
        except Exception:
            logger.exception("sglang-fence: the profiler can't be told; serving goes on")
