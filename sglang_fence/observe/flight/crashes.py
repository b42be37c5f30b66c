"""``CrashHooks``: hears of exceptions that nobody caught, and of an end that nobody announced."""

from __future__ import annotations

import atexit
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType


class CrashHooks:
    """Stands before the hooks that were there, and calls them afterwards.

    A fatal signal (a segmentation fault, an abort, SIGKILL) ends the process without running any Python: nothing is
    heard of it here.

    Args:
        crashed: called with the type of the exception, on the thread that it ended.
        ended: called when the interpreter ends while the hooks are still installed.
    """

    def __init__(self, crashed: Callable[[type[BaseException]], None], ended: Callable[[], None]) -> None:
        self._crashed = crashed
        self._ended = ended
        self._hook = self._of_main  # one object each, to be known again
        self._thread_hook = self._of_thread
        self._before = sys.excepthook
        self._thread_before = threading.excepthook

    def install(self) -> None:
        """Install them."""
        self._before, sys.excepthook = sys.excepthook, self._hook
        self._thread_before, threading.excepthook = threading.excepthook, self._thread_hook
        atexit.register(self._ended)

    def remove(self) -> None:
        """Put back what was there, unless somebody came later: theirs may call ours, which does no harm."""
        if sys.excepthook == self._hook:
            sys.excepthook = self._before
        if threading.excepthook == self._thread_hook:
            threading.excepthook = self._thread_before
        atexit.unregister(self._ended)

    def _of_main(self, kind: type[BaseException], value: BaseException, traceback: TracebackType | None) -> None:
        self._crashed(kind)
        self._before(kind, value, traceback)

    def _of_thread(self, args: threading.ExceptHookArgs) -> None:
        if args.exc_type is not SystemExit:
            self._crashed(args.exc_type)
        self._thread_before(args)
