"""``FlightRecorder``: writes a dump when it is asked to, by a signal, by a stall, or by a crash. Calls no device."""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Self

from sglang_fence import __version__
from sglang_fence.errors import UserError
from sglang_fence.garbage import no_garbage_collection
from sglang_fence.observe.flight.crashes import CrashHooks
from sglang_fence.observe.flight.facts import Cause, Clock, Dump
from sglang_fence.observe.flight.form import to_text
from sglang_fence.observe.flight.signalling import SignalPipe
from sglang_fence.observe.flight.snapshot import progress_of, stack_of, steps_of
from sglang_fence.observe.flight.watchdog import Watchdog

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from sglang_fence.observe.flight.options import FlightOptions
    from sglang_fence.observe.flight.recording import Recording

logger = logging.getLogger(__name__)

THREAD = "sglang-fence-flight"

_TURN_S = 10.0
"""How long a dump waits for another one to be written."""

_JOIN_S = 10.0


class FlightRecorder(AbstractContextManager["FlightRecorder"]):
    """Started by the thread that serves, and closed by it.

    As a context manager it is closed at the end, and takes an exception that leaves the block for a crash, unless it is
    a user's mistake.

    Args:
        probe: what writes the records; it records.
        options: how.
        virtual: whether the probe's clock is virtual time.

    Raises:
        ConfigError: the folder can't be made or written.
    """

    def __init__(self, probe: Recording, options: FlightOptions, *, virtual: bool) -> None:
        self._probe = probe
        self._clock = Clock.VIRTUAL if virtual else Clock.HOST
        self._rank = options.rank
        self._files = options.files()
        self._watchdog_s = options.watchdog_s
        self._turn = threading.Lock()
        self._crashed: set[type[BaseException]] = set()
        self._pipe: SignalPipe | None = None
        self._hooks = CrashHooks(self.crashed, self._exiting)
        self._thread: threading.Thread | None = None
        self._serving: int | None = None
        self._closing = False

    @property
    def folder(self) -> Path:
        """Where its dumps go."""
        return self._files.folder

    def start(self) -> None:
        """Listen, from now on, on behalf of the calling thread, which serves."""
        if self._thread is not None:
            return
        self._serving = threading.get_ident()
        self._pipe = SignalPipe()
        unheard = self._pipe.listen()
        if unheard is not None:
            logger.warning("flight recorder: SIGUSR2 isn't listened for: %s", unheard)
        self._hooks.install()
        watchdog = Watchdog(self._probe, self._watchdog_s, time.monotonic()) if self._watchdog_s else None
        self._thread = threading.Thread(target=self._work, args=(self._pipe, watchdog), name=THREAD, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening, and put back what was there before. A second time does nothing."""
        if self._pipe is None or self._thread is None:
            return
        self._closing = True
        self._hooks.remove()
        self._pipe.wake()
        self._thread.join(_JOIN_S)
        if not self._thread.is_alive():
            self._pipe.close()
        self._pipe = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None and not issubclass(kind, UserError):
            self.crashed(kind)
        self.close()

    def crashed(self, kind: type[BaseException]) -> None:
        """An exception of this type ended a thread. The second of a type is passed over: it is mostly the same one."""
        if kind not in self._crashed:
            self._crashed.add(kind)
            self.dump(Cause.EXCEPTION, f"{kind.__module__}.{kind.__qualname__}")

    def dump(self, cause: Cause = Cause.ASKED, detail: str | None = None) -> Path | None:
        """Write a dump, on any thread; return its path, or None where that failed, which is logged.

        Args:
            cause: why.
            detail: more of it; no text of a user's.
        """
        if not self._turn.acquire(timeout=_TURN_S):
            logger.error("flight recorder: no dump (%s): another one is still being written", cause)
            return None
        try:
            with no_garbage_collection():  # it may be an event or a tensor, whose end calls the device
                path = self._files.write(to_text(self.snapshot(cause, detail)), cause.value)
        except Exception:
            logger.exception("flight recorder: no dump (%s)", cause)
            return None
        finally:
            self._turn.release()
        logger.warning("flight recorder: wrote %s (%s)", path, cause if detail is None else f"{cause}: {detail}")
        return path

    def snapshot(self, cause: Cause = Cause.ASKED, detail: str | None = None) -> Dump:
        """Return what a dump would hold now."""
        probe = self._probe
        ring = probe.ring
        records = () if ring is None else ring.all_records()
        capacity = 0 if ring is None else len(ring.records)
        return Dump(
            version=__version__,
            rank=self._rank,
            pid=os.getpid(),
            cause=cause,
            detail=detail,
            wall_ns=time.time_ns(),
            now_ns=probe.now_ns(),
            clock=self._clock,
            capacity=capacity,
            progress=progress_of(probe.progress),
            steps=steps_of(records, probe.newest)[-max(1, capacity) :],
            stack=stack_of(self._serving),
        )

    def _work(self, pipe: SignalPipe, watchdog: Watchdog | None) -> None:
        """On the recorder's own thread."""
        while not self._closing:
            try:
                if pipe.wait(None if watchdog is None else watchdog.interval_s):
                    self.dump(Cause.SIGNAL)
                    pipe.forget()
                elif watchdog is not None and watchdog.look(time.monotonic()):
                    self.dump(Cause.WATCHDOG, f"no move for {watchdog.seconds:g} s")
            except Exception:
                logger.exception("flight recorder: its thread ends")
                return

    def _exiting(self) -> None:
        self.dump(Cause.EXIT)


def recording(probe: Recording, options: FlightOptions, *, virtual: bool) -> AbstractContextManager[object]:
    """Return a flight recorder for ``probe``, to be entered; one that does nothing where the probe doesn't record.

    Raises:
        ConfigError: as for :class:`FlightRecorder`.
    """
    return FlightRecorder(probe, options, virtual=virtual) if probe.recording else nullcontext()
