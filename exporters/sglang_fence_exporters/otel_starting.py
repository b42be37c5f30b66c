"""How the process is started that sends spans: alone, with the modules of this one, and with nothing else of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import IO, NamedTuple

from sglang_fence.errors import ConfigError

MODULE = "sglang_fence_exporters.otel_sender"


class Pipes(NamedTuple):
    """Our ends."""

    stdin: IO[bytes]
    stdout: IO[bytes]
    stderr: IO[bytes]


def started() -> tuple[subprocess.Popen[bytes], Pipes]:
    """Start it.

    Raises:
        ConfigError: it can't be started.
    """
    try:
        process = subprocess.Popen(  # noqa: S603 - ourselves
            [sys.executable, "-P", "-m", MODULE],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # What is found here is found there, however it came to be found.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(_search_path())},
            # Ctrl-C is for whoever serves. It ends with us, not before us.
            start_new_session=True,
        )
    except OSError as error:
        msg = f"the process that sends traces can't be started ({error}): mend that, or leave traces out"
        raise ConfigError(msg) from error
    if process.stdin is None or process.stdout is None or process.stderr is None:
        msg = "pipes were asked for"
        raise TypeError(msg)
    return process, Pipes(process.stdin, process.stdout, process.stderr)


def _search_path() -> list[str]:
    return [str(Path(os.fsdecode(entry)).absolute()) for entry in sys.path]
