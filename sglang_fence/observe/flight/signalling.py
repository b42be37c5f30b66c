"""``SignalPipe``: SIGUSR2 wakes a thread, whatever the main thread is stuck in.

A Python signal handler runs on the main thread between two instructions of Python: never, while that thread is in C.
But the handler in C that Python installs writes the signal's number into a pipe at once (``signal.set_wakeup_fd``),
from whichever thread the system picked, without the interpreter's lock. The thread that reads the pipe needs that lock:
a thread that is stuck in C *and holds the lock* stops it, and every other thread of Python's.

There is one such pipe in a process, and one handler for a signal. Who was there before goes on hearing: numbers are
handed on, and the handler is called. Who comes later (an asyncio loop on the main thread) may take the pipe; then the
Python handler still writes into ours, as long as the main thread isn't stuck.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

SIGNAL = signal.SIGUSR2
_WAKE = b"\0"
"""No signal has this number."""
_AT_ONCE = 4096


class SignalPipe:
    """Made and closed on the main thread; :meth:`wait` is for one other thread."""

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        os.set_blocking(self._writing, False)
        self._before: Callable[[int, FrameType | None], object] | int | None = None
        self._pipe_before = -1
        self._handler = self._handle  # one object, to be known again
        self.heard = False
        """Whether the signal is listened for."""

    def listen(self) -> str | None:
        """Install the handler; return why that can't be done, or None. The signal doesn't interrupt system calls."""
        if threading.current_thread() is not threading.main_thread():
            return "the main thread alone can install it"
        before = signal.getsignal(SIGNAL)
        if before is None:
            return "a handler that isn't Python's has the signal"
        self._before = before
        self._pipe_before = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        signal.signal(SIGNAL, self._handler)
        signal.siginterrupt(SIGNAL, False)  # noqa: FBT003 - it takes no keyword
        self.heard = True
        return None

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until the signal comes (True), or until :meth:`wake` is called or time is up (False)."""
        ready, _, _ = select.select([self._reading], [], [], timeout_s)
        if not ready:
            return False
        numbers = self._read()
        if self._pipe_before >= 0:
            with suppress(OSError):  # full, or closed by its owner
                os.write(self._pipe_before, numbers.replace(_WAKE, b""))
        return SIGNAL in numbers

    def forget(self) -> None:
        """Pass over signals that came up to now: what they asked for is done."""
        with suppress(BlockingIOError):
            self._read()

    def wake(self) -> None:
        """Let :meth:`wait` return."""
        self._write(_WAKE)

    def close(self) -> None:
        """Put back what was there before, unless somebody came later, and close the pipe."""
        if self.heard and threading.current_thread() is threading.main_thread():
            self.heard = False
            if signal.getsignal(SIGNAL) is self._handler:
                signal.signal(SIGNAL, self._before)
            current = signal.set_wakeup_fd(-1)
            wanted = self._pipe_before if current == self._writing else current
            with suppress(ValueError, OSError):  # closed by its owner meanwhile
                signal.set_wakeup_fd(wanted)
        writing, self._writing = self._writing, -1
        os.close(writing)
        os.close(self._reading)

    def _read(self) -> bytes:
        return os.read(self._reading, _AT_ONCE)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """On the main thread, some time later. The pipe has the number already, unless somebody else took its place."""
        current = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        if current != self._writing:
            with suppress(ValueError, OSError):
                signal.set_wakeup_fd(current)
            self._write(bytes([number]))
        if callable(self._before):
            self._before(number, frame)

    def _write(self, numbers: bytes) -> None:
        with suppress(OSError):  # full: it is awake then; or closed
            os.write(self._writing, numbers)
