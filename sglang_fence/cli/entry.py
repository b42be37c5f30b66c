"""``main``: the command line's entry. It imports next to nothing: loading what the commands need takes seconds."""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

INTERRUPTED = 128 + signal.SIGINT
"""The status of a program that Ctrl-C ended, as shells give it."""


def main() -> None:
    """Run the command line; a user's mistake is one line on stderr and exit status 2, a fault of ours is status 3."""
    with _ended_quietly_by_ctrl_c():
        from sglang_fence.cli.app import run_app  # noqa: PLC0415 - the seconds are spent here, behind the handler
    try:
        sys.exit(run_app())
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


@contextmanager
def _ended_quietly_by_ctrl_c() -> Generator[None]:
    """Let Ctrl-C end the process at once, with no traceback from wherever an import has got to.

    An exception would not do: some packages catch whatever is raised while they are imported. Nothing is lost, since
    nothing has begun. Where Ctrl-C is ignored or handled by somebody else, it stays so.
    """
    ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if ours:
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
