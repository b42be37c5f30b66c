"""Looking at processes by way of ``/proc``, and waiting for what another one does."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sglang_fence_exporters.otel_sender_process import SenderProcess

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglang_fence_exporters.otel import OpenTelemetryExporter

DEADLINE_S = 30.0
"""Far more than anything here takes."""


def until(condition: Callable[[], object]) -> None:
    """Wait for what will be so in a moment."""
    give_up = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < give_up, "it never came true"
        time.sleep(0.01)


def sender_of(exporter: OpenTelemetryExporter) -> SenderProcess:
    """Return where the exporter takes steps, once it can send them."""
    route = exporter._route
    assert isinstance(route, SenderProcess)
    route.hurry()
    return route


def is_left(process_id: int) -> bool:
    """Whether there is such a process, were it but a zombie."""
    return Path(f"/proc/{process_id}").exists()


def is_running(process_id: int) -> bool:
    """Whether there is such a process, and it isn't a zombie: one of ours may have been left to others to reap."""
    try:
        status = Path(f"/proc/{process_id}/stat").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def child_processes() -> set[int]:
    """Return all processes that this one has started and not reaped.

    Where a thread ends meanwhile, another one has its children from then on: all are looked at anew.
    """
    while True:
        with suppress(FileNotFoundError, ProcessLookupError):
            children = (thread / "children" for thread in Path("/proc/self/task").iterdir())
            return {int(child) for path in children for child in path.read_text(encoding="ascii").split()}
