"""Steps whose spans another process builds and sends. Here they are packed and written into its pipe, and that is all.

Building and encoding spans would keep the serving thread from the interpreter lock, for some 0.7 ms a step. The process
sees the end of its pipe when we close it, or when we are gone, and then ends by itself, in time.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from typing import TYPE_CHECKING

from sglang_fence_exporters.otel_frames import FrameReader, FrameWriter
from sglang_fence_exporters.otel_packing import pack
from sglang_fence_exporters.otel_sending import CANT_SEND, NO_ANSWER
from sglang_fence_exporters.otel_starting import started
from sglang_fence_exporters.otel_talk import Counts, heard, said

if TYPE_CHECKING:
    from sglang_fence.observe.trace import StepTrace
    from sglang_fence_exporters.otel_talk import Hello

logger = logging.getLogger(__name__)

START_S = 10.0
"""How long the end of a run waits, at the most, for a process that hasn't started yet. Starting takes half a second."""

LOOK_MS = 50
"""How often the end looks whether its time is over, unless something is heard before."""

PIECE_BYTES = 65_536
"""As much as a pipe holds."""

TAIL_BYTES = 4_096
"""So much is kept of what the process writes to its standard error, for the line that tells of its end."""


class SenderProcess:
    """Hands steps over to a process of its own: a :class:`~sglang_fence_exporters.otel_route.Route`."""

    poll_s = 0.2
    """Few turns, since each may delay a step of serving. Of 5,000 steps a second each might still find room."""

    def __init__(self, hello: Hello) -> None:
        """Start it.

        Raises:
            ConfigError: it can't be started.
        """
        self._where = hello.endpoint
        self._process, self._pipes = started()
        self._poller = select.poll()
        for pipe in (self._pipes.stderr, self._pipes.stdout):  # its last words are there before its end is noticed
            os.set_blocking(pipe.fileno(), False)
            self._poller.register(pipe, select.POLLIN)
        self._reader = FrameReader()
        self._writer = FrameWriter(self._pipes.stdin.fileno())
        self._has_started = threading.Event()
        self._counts = Counts()
        self._handed = 0
        self._tail = b""
        self._told = False
        self._closing = False
        self._killed = False
        self._over = False
        self._end_by: float | None = None
        self._writer.write(said(hello))

    @property
    def process_id(self) -> int:
        """Identifier of the process."""
        return self._process.pid

    @property
    def lost(self) -> int:
        """Steps known to be lost: once the process is over, all that it hasn't told us were sent."""
        return self._handed - self.settled if self._over else self._counts.failed + self._counts.broken

    @property
    def settled(self) -> int:
        """Steps that the collector has confirmed, or that no spans were wanted of."""
        return self._counts.sent + self._counts.declined

    @property
    def malformed_links(self) -> int:
        """As the process has counted them."""
        return self._counts.malformed_links

    def has_room(self, trace: StepTrace) -> bool:  # noqa: ARG002 - part of one may always wait here, however large
        """Whether nothing waits for the pipe, or the process is over: then steps are lost in any case."""
        return self._writer.is_clear or self._over

    def take(self, trace: StepTrace) -> str | None:
        """Write it into the pipe.

        Raises:
            ValueError: something in it is neither a number nor text.
        """
        # Not by random's common generator: a serving program may seed that, and count on what it draws from it.
        trace_id = os.urandom(16).hex()
        message = pack(trace_id, trace)
        self._handed += 1
        if self._over:
            return None
        self._writer.write(message)
        return trace_id

    def look(self) -> None:
        """Hear what the process says, and write what waits."""
        self._listen(0)
        self._writer.push()

    def hurry(self) -> None:
        """Wait until it has started, or is over."""
        self._has_started.wait(START_S)

    def close(self) -> None:
        """Have it send what it has, and wait until it is gone."""
        while not (self._writer.is_clear or self._over or self._end_by is not None):
            self._listen(LOOK_MS)
            self._writer.push()
        self._closing = True
        self._pipes.stdin.close()
        while not (self._over or self._is_overdue()):
            self._listen(LOOK_MS)
        if not self._over:
            self._killed = True
            self._process.kill()
            while not self._over:  # hears what it had told until then
                self._listen(LOOK_MS)
        self._pipes.stdout.close()
        self._pipes.stderr.close()

    def abort(self, within_s: float) -> None:
        """Let it have so long to be gone by itself."""
        self._end_by = time.monotonic() + within_s

    def _is_overdue(self) -> bool:
        return self._end_by is not None and time.monotonic() >= self._end_by

    def _listen(self, timeout_ms: int) -> bool:
        """Wait for a word of the process; return whether there was one, if only that it is over."""
        ready = self._poller.poll(timeout_ms)
        for fd, _ in ready:
            piece = os.read(fd, PIECE_BYTES)
            if not piece:
                self._poller.unregister(fd)
            if fd == self._pipes.stderr.fileno():
                self._tail = (self._tail + piece)[-TAIL_BYTES:]
            elif piece:
                self._hear(piece)
            else:
                self._ended()
        return bool(ready)

    def _hear(self, piece: bytes) -> None:
        self._reader.feed(piece)
        for message in self._reader.messages():
            word = heard(message)
            if isinstance(word, Counts):
                self._counts = word
                self._has_started.set()
            else:
                self._told = True
                logging.getLogger(word.logger).log(word.level, "%s", word.text)

    def _ended(self) -> None:
        self._over = True
        self._has_started.set()
        if not self._closing:
            self._process.kill()  # its output is closed: should it still be there, nobody would hear of what it does
        status = self._process.wait()
        if self._killed:
            why = "" if self._told else NO_ANSWER
        elif self._closing and not status:
            why = ""
        else:
            last_words = self._tail.decode(errors="replace").strip().splitlines()[-1:]
            why = ": ".join([f"the process that sends them ended with status {status}", *last_words])
        if why:
            logger.warning(CANT_SEND, self._where, why)
