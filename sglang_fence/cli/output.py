"""Standard output: what it can't show, what can't be written to it, and who stopped reading it (``| head -1``)."""

from __future__ import annotations

import errno
import io
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sglang_fence.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Generator

CLOSED_OUTPUT = 141
"""The exit status where nobody reads on, as of a program that SIGPIPE ended; 1 means that hazards were found."""

_STDOUT = 1
"""Its file descriptor."""

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG})


def say_all_that_can_be_said() -> None:
    """Let no letter that standard output can't take, such as the µ where it takes ASCII alone, end a command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


@contextmanager
def checked_output() -> Generator[None]:
    """Tell a standard output that can't be written from a fault of ours.

    Raises:
        ConfigError: it can't be written.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL or error.filename is not None:
            raise
        msg = f"standard output can't be written ({error.strerror}): send it somewhere that has room"
        raise ConfigError(msg) from error


def flush_output() -> None:
    """Write what was said.

    Raises:
        BrokenPipeError: nobody reads it any more.
        ConfigError: it can't be written.
    """
    if sys.stdout is not None:  # which it is where it was closed from the start
        with checked_output():
            sys.stdout.flush()


def give_up_output() -> int:
    """Send what is left to say to nowhere, so that the interpreter doesn't complain at its end; return the status."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), _STDOUT)
    return CLOSED_OUTPUT
