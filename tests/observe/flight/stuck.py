"""Run ``sglang-fence`` on the simulated device and get stuck on purpose; a script, for processes of its own.

``python stuck.py PLACE STEP run …``: the main thread blocks in C, without the interpreter's lock, at one PLACE of STEP:

* ``launch``: in the launch of the step's forward;
* ``wait``: while the schedule stream's wait behind the step is enqueued, for an event that nobody sets;
* ``results``: in a kernel of the step that never ends, which the host runs into when it waits for the results;
* ``error``: not at all; the kernel raises;
* ``nowhere``: not at all.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING, Any

from sglang_fence import cli
from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.device.simulated.streams import SimulatedStream

if TYPE_CHECKING:
    from collections.abc import Callable


def say(word: str) -> None:
    """Tell whoever started this process."""
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def block_in_read() -> None:
    """Read from a pipe into which nobody writes."""
    reading, _writing = os.pipe()
    say("stuck")
    os.read(reading, 1)


def block_on_event() -> None:
    """Wait for what nobody sets."""
    say("stuck")
    threading.Event().wait()


def fail() -> None:
    """Raise, with a text that belongs into no dump."""
    msg = "a secret prompt"
    raise RuntimeError(msg)


def get_stuck(place: str, at_step: int) -> None:
    """Patch the simulated device."""
    launch, wait_event = SimulatedDevice.launch, SimulatedStream.wait_event

    def launch_or_block(device: SimulatedDevice, name: str, body: Callable[[], object], **accesses: Any) -> None:  # noqa: ANN401 - passed on
        if name == "sample" and device._core.step == at_step:
            if place == "launch":
                block_in_read()
            body = {"results": block_in_read, "error": fail}.get(place, body)
        launch(device, name, body, **accesses)

    def wait_or_block(stream: SimulatedStream, event: Any) -> None:  # noqa: ANN401 - passed on
        if place == "wait" and stream.name == "schedule" and stream._core.step == at_step:
            block_on_event()
        wait_event(stream, event)

    SimulatedDevice.launch = launch_or_block  # type: ignore[method-assign, assignment] # what it passes on
    SimulatedStream.wait_event = wait_or_block  # type: ignore[method-assign, assignment] # what it passes on


if __name__ == "__main__":
    get_stuck(sys.argv[1], int(sys.argv[2]))
    sys.argv = ["sglang-fence", *sys.argv[3:]]
    cli.main()
