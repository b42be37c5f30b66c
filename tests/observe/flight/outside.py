"""Looks at a process from outside: starts it, waits until it is stuck, sends it a signal, waits for its dumps."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sglang_fence.observe.flight.form import read

if TYPE_CHECKING:
    from collections.abc import Generator

    from sglang_fence.observe.flight.facts import Dump

SCRIPT = Path(__file__).parent / "stuck.py"

PATIENCE_S = 60.0
"""Far above what anything here takes: a test that waits for so long has failed."""


class Outside:
    """One process, and the folder of its dumps."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self.process = process
        self.folder = folder

    def until_stuck(self) -> None:
        """Wait until the process says that it blocks next."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.strip() == "stuck":
                return
        msg = f"the process ended with {self.process.wait()} before it was stuck"
        raise AssertionError(msg)

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def dump(self, count: int = 1) -> Dump:
        """Wait for so many dumps, and read the last."""
        deadline = time.monotonic() + PATIENCE_S
        while len(found := self.files()) < count:
            assert time.monotonic() < deadline, f"no dump in {self.folder}"
            assert self.process.poll() is None or len(self.files()) >= count, f"ended: {self.process.returncode}"
            time.sleep(0.005)
        return read(found[-1])

    def files(self) -> list[Path]:
        """Return its dumps, the oldest first."""
        return sorted(self.folder.glob("sglang-fence-flight-*.json"), key=lambda path: path.stat().st_mtime_ns)


@contextmanager
def started(
    place: str, step: int, folder: Path, *options: str, rank: int = 0, device: str = "simulated", records: bool = True
) -> Generator[Outside]:
    """Start a run that gets stuck at a place of a step; it is killed at the end, as nothing else could end it.

    Its dumps go to ``folder``; without a recorder, that is where one would write to that was there all the same.
    """
    command = [sys.executable, str(SCRIPT), place, str(step), "run", "--device", device]
    command += ["--requests", "3", "--max-new-tokens", "24", *options]
    command += ["--flight-dir", str(folder)] if records else ["--flight-recorder", "0"]
    paths = os.pathsep.join(sys.path)  # the same modules as here, wherever this runs
    environ = {**os.environ, "PYTHONPATH": paths, "RANK": str(rank), "OMP_NUM_THREADS": "1", "TMPDIR": str(folder)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ) as process:
        try:
            yield Outside(process, folder)
        finally:
            process.kill()
