"""Messages in a pipe: each behind its length. What is written has a bound, and what is read may come in any pieces."""

from __future__ import annotations

import os
from struct import Struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_LENGTH = Struct("<I")
_EMPTY = memoryview(b"")


def framed(message: bytes) -> bytes:
    """Return ``message`` behind its length."""
    return _LENGTH.pack(len(message)) + message


class FrameReader:
    """Puts messages together again. Keeps no more than it was fed and hasn't given out."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, piece: bytes) -> None:
        """Take what was read."""
        self._bytes += piece

    def messages(self) -> Iterator[bytes]:
        """Give out each message that is there whole."""
        while len(self._bytes) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._bytes)[0]
            if len(self._bytes) < end:
                return
            message = bytes(self._bytes[_LENGTH.size : end])
            del self._bytes[:end]
            yield message


class FrameWriter:
    """Writes into a pipe and never waits: of one message at the most, the rest is kept until it has room."""

    def __init__(self, fd: int) -> None:
        """Write into ``fd``, which stays its maker's to close."""
        os.set_blocking(fd, False)
        self._fd = fd
        self._rest = _EMPTY

    @property
    def is_clear(self) -> bool:
        """Whether all that was given has been written."""
        return not self._rest

    def write(self, message: bytes) -> None:
        """Write a message, or its beginning. Only when clear. Where nobody reads any more, it is lost."""
        self._rest = memoryview(framed(message))
        self.push()

    def push(self) -> None:
        """Write as much of the rest as has room."""
        while self._rest:
            try:
                written = os.write(self._fd, self._rest)
            except BlockingIOError:
                return
            except OSError:
                self._rest = _EMPTY
                return
            self._rest = self._rest[written:]
