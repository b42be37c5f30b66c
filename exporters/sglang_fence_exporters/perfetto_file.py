"""``TraceFile``: a file that appears whole or not at all.

What is written goes to a temporary file beside the target, which takes the target's name once everything is in it. A
run that breaks off therefore leaves no trace file, and what had the name before stays as it was. The temporary file is
removed when the process exits; only a process that is killed outright leaves it behind.
"""

from __future__ import annotations

import atexit
import os
from contextlib import suppress
from errno import EACCES, EINVAL
from typing import TYPE_CHECKING, BinaryIO

from sglang_fence.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

BUFFER_BYTES = 1 << 16


class TraceFile:
    """The file at ``path``, under another name until :meth:`keep`."""

    def __init__(self, path: Path) -> None:
        """Open it, so that a path that can't be written is found before anything is done.

        Raises:
            ConfigError: ``path`` can't be written.
        """
        # The target of a link is replaced, not the link. A device such as /dev/null must not be replaced at all.
        self.path = path.resolve()
        self.partial = self.path.with_name(f".{self.path.name}.{os.getpid()}.partial")
        try:
            self._check()
            self.stream: BinaryIO = self.partial.open("wb", buffering=BUFFER_BYTES)
        except OSError as error:
            why = error.strerror
            msg = f"the Perfetto trace can't be written to {str(path)!r} ({why}): name another file"
            raise ConfigError(msg) from error
        atexit.register(self.discard)

    def _check(self) -> None:
        """Raise an OSError for what opening another file beside it would not tell."""
        if not self.path.exists():
            return
        if not self.path.is_file():
            raise OSError(EINVAL, "there is something that isn't a file")
        if not os.access(self.path, os.W_OK):
            raise PermissionError(EACCES, "the file that is there is write-protected")

    def keep(self) -> None:
        """All is written: give it its name.

        Raises:
            OSError: the rest could not be written, or the name not be given. Discard it then.
        """
        self.stream.close()
        self.partial.replace(self.path)
        atexit.unregister(self.discard)

    def discard(self) -> None:
        """Leave nothing behind. Never raises."""
        atexit.unregister(self.discard)
        with suppress(OSError):  # The disk is full, say. What could not be written was to be removed anyway.
            self.stream.close()
        with suppress(OSError):
            self.partial.unlink()
