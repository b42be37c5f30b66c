"""The process that builds spans and sends them; :mod:`~sglang_fence_exporters.otel_sender_process` starts it.

Steps come in at its standard input, and what became of them goes out at its standard output, with the lines to log. It
ends when its input does, or when the serving process is gone: it sends what it has, within the end's time. It imports
no torch, and nothing of it can hold serving up.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from sglang_fence.errors import FenceError
from sglang_fence_exporters.otel_address import Address, Protocol
from sglang_fence_exporters.otel_delivery import OwnDelivery
from sglang_fence_exporters.otel_frames import FrameReader, framed
from sglang_fence_exporters.otel_ids import GivenTraceId
from sglang_fence_exporters.otel_packing import unpack
from sglang_fence_exporters.otel_spans import CANT_BUILD, SpanBuilder
from sglang_fence_exporters.otel_starting import MODULE
from sglang_fence_exporters.otel_talk import Counts, Line, hello_heard, said

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sglang_fence_exporters.otel_talk import Hello

logger = logging.getLogger(MODULE)

STDIN, STDOUT, STDERR = 0, 1, 2
PIECE_BYTES = 65_536

LOOK_S = 0.1
"""How often it tells what became of steps, and looks whether the serving process is still there."""

ROOM_S = 0.01
"""How often it looks for room in the batch processor's queue."""

SPARED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""They may be sent to all of a service at once, and the serving process still has steps to hand over when it ends."""


class Speaker(logging.Handler):
    """Says things to the serving process, while that is there."""

    def __init__(self, fd: int) -> None:
        super().__init__(logging.WARNING)
        self.setFormatter(logging.Formatter("%(message)s"))
        self._fd = fd
        self._told: Counts | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Have a line logged."""
        self._say(Line(record.name, record.levelno, self.format(record)))

    def tell(self, counts: Counts) -> None:
        """Say what became of steps, if that is news."""
        self.acquire()
        try:
            if counts != self._told:
                self._told = counts
                self._say(counts)
        finally:
            self.release()

    def _say(self, word: Counts | Line) -> None:
        message = memoryview(framed(said(word)))
        with suppress(OSError):  # it is gone
            while message:
                message = message[os.write(self._fd, message) :]


class Sender:
    """Builds and sends."""

    def __init__(self, hello: Hello, speaker: Speaker) -> None:
        """Prepare; nothing is contacted.

        Raises:
            ConfigError: the environment isn't as the serving process saw it.
        """
        self._speaker = speaker
        self._ids = GivenTraceId()
        address = Address(Protocol(hello.protocol), hello.endpoint)
        self._delivery = OwnDelivery(address, os.environ, self._ids, hello.resource)
        self._builder = SpanBuilder(self._delivery.tracer)
        self._declined = 0
        self._broken = 0

    def send(self, message: bytes) -> None:
        """Build the spans of a step, once they have room."""
        step = None
        try:
            trace_id, trace = unpack(message)
            step, spans = trace.step, 1 + len(trace.spans)
            while not self._delivery.has_room(spans):
                time.sleep(ROOM_S)
            self._ids.trace_id = int(trace_id, 16)
            is_built = self._builder.build(trace) is not None
        except Exception:
            self._broken += 1
            if self._broken == 1:
                logger.exception(CANT_BUILD, step)
            return
        if is_built:
            self._delivery.hand_over(spans)
        else:
            self._declined += 1

    def close(self) -> None:
        """Send what waits."""
        self._delivery.close()
        self.tell()

    def give_up(self) -> None:
        """The end's time is over."""
        self._delivery.abort()
        self.tell()

    def tell(self) -> None:
        """Say what became of steps."""
        delivery, broken = self._delivery, self._broken
        links = self._builder.malformed_links
        self._speaker.tell(Counts(delivery.settled, delivery.failed, self._declined, broken, links))


class Watch:
    """Knows when the end has come, also while the sender waits for a collector, and ends the process in time."""

    def __init__(self, sender: Sender, hello: Hello) -> None:
        self.ended = threading.Event()
        self._sender = sender
        self._parent = hello.parent
        self._end_s = hello.end_s
        self._poller = select.poll()
        self._poller.register(STDIN, 0)  # tells when the other end is closed, however much is left to read
        threading.Thread(target=self._work, name="sglang-fence-otel-watch", daemon=True).start()

    def _work(self) -> None:
        while not self._poller.poll(LOOK_S * 1000):
            self._sender.tell()
            # The serving process may have forked others, which hold its end open when it is gone.
            if os.getppid() != self._parent:
                break
        self.ended.set()
        give_up = time.monotonic() + self._end_s
        while time.monotonic() < give_up:
            time.sleep(min(LOOK_S, max(0.0, give_up - time.monotonic())))
            self._sender.tell()
        self._sender.give_up()
        os._exit(0)


def messages() -> Iterator[bytes | None]:
    """Give out what comes in, and None where nothing does for a while. Reads on once all that was read is given out."""
    frames, poller = FrameReader(), select.poll()
    poller.register(STDIN, select.POLLIN)
    while True:
        if not poller.poll(LOOK_S * 1000):
            yield None
            continue
        piece = os.read(STDIN, PIECE_BYTES)
        if not piece:
            return
        frames.feed(piece)
        yield from frames.messages()


def main() -> None:
    """Send until the end. Never returns."""
    for number in SPARED:
        signal.signal(number, signal.SIG_IGN)
    speaker = Speaker(os.dup(STDOUT))
    os.dup2(STDERR, STDOUT)  # whatever else is printed isn't for the serving process
    coming = messages()
    try:
        hello = hello_heard(next(message for message in coming if message is not None))
        sender = Sender(hello, speaker)
    except StopIteration:
        sys.exit(f"{MODULE} is started by sglang-fence, and hears from it what to send")
    except (FenceError, ValueError) as error:
        sys.exit(str(error))
    logging.getLogger().addHandler(speaker)
    sender.tell()
    watch = Watch(sender, hello)
    for message in coming:
        if message is not None:
            sender.send(message)
        elif watch.ended.is_set():
            break
    sender.close()
    # Not by way of the interpreter's end: it would wait for threads of gRPC's, and there is nothing left to do.
    os._exit(0)


if __name__ == "__main__":
    main()
