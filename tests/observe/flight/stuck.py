"""Run ``sglang-fence`` and get stuck on purpose; a script, for processes of its own.

``python stuck.py PLACE STEP run …``: at one PLACE of STEP the process gets stuck. On the simulated device the main
thread blocks in C, without the interpreter's lock:

* ``launch``: in the launch of the step's forward;
* ``wait``: while the schedule stream's wait behind the step is enqueued, for an event that nobody sets;
* ``results``: in a kernel of the step that never ends, which the host runs into when it waits for the results.

On CUDA the forward stream stands still from the beginning of the step's forward, and the host runs into that:

* ``spin``: a kernel spins;
* ``unrecorded``: the stream waits for what nobody ever writes, as for an event that nobody records.

On both:

* ``error``: not stuck; a kernel of the step raises;
* ``nowhere``: not stuck.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

import torch

from sglang_fence import cli
from sglang_fence.device.cuda import CudaDevice
from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.device.simulated.streams import SimulatedStream

if TYPE_CHECKING:
    from collections.abc import Callable

HOURS_OF_CYCLES = 1 << 45
AT_LEAST = 0
"""``CU_STREAM_WAIT_VALUE_GEQ``."""


def say_stuck() -> None:
    """Tell whoever started this process."""
    sys.stdout.write("stuck\n")
    sys.stdout.flush()


def block_in_read() -> None:
    """Read from a pipe into which nobody writes."""
    reading, _writing = os.pipe()
    say_stuck()
    os.read(reading, 1)


def block_on_event() -> None:
    """Wait for what nobody sets."""
    say_stuck()
    threading.Event().wait()


def spin() -> None:
    """Keep the current stream busy for hours."""
    torch.cuda._sleep(HOURS_OF_CYCLES)
    say_stuck()


def wait_for_nobody() -> None:
    """Let the current stream wait for a word in memory that nobody writes."""
    driver = ctypes.CDLL("libcuda.so.1")
    word = torch.zeros(1, dtype=torch.int32, device="cuda")
    torch.cuda.current_stream().synchronize()  # the zero is written
    kept.append(word)
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    address, value = ctypes.c_uint64(word.data_ptr()), ctypes.c_uint32(1)
    result = driver.cuStreamWaitValue32_v2(stream, address, value, ctypes.c_uint(AT_LEAST))
    if result:
        msg = f"cuStreamWaitValue32: CUDA error {result}"
        raise RuntimeError(msg)
    say_stuck()


kept: list[torch.Tensor] = []


def fail() -> None:
    """Raise, with a text that belongs into no dump."""
    msg = "a secret prompt"
    raise RuntimeError(msg)


BEFORE = {
    "launch": ("sample", block_in_read),
    "spin": ("load_batch", spin),
    "unrecorded": ("load_batch", wait_for_nobody),
}
"""What is done before a kernel of the step is launched."""

INSTEAD = {"results": block_in_read, "error": fail}
"""What the body of the step's kernel ``sample`` does instead."""


class Sticking:
    """Patches a device."""

    def __init__(self, device: type[Any], place: str, at_step: int) -> None:
        self.step = -1
        self._place = place
        self._at_step = at_step
        launch, set_step, wait_event = device.launch, device.set_step, SimulatedStream.wait_event

        def launch_or_block(own: Any, name: str, body: Callable[[], object], **accesses: Any) -> None:  # noqa: ANN401 - passed on
            launch(own, name, self.body(name, body), **accesses)

        def note_step(own: Any, step: int) -> None:  # noqa: ANN401 - passed on
            self.step = step
            set_step(own, step)

        def wait_or_block(stream: SimulatedStream, event: Any) -> None:  # noqa: ANN401 - passed on
            if place == "wait" and stream.name == "schedule" and self.step == at_step:
                block_on_event()
            wait_event(stream, event)

        device.launch, device.set_step = launch_or_block, note_step
        SimulatedStream.wait_event = wait_or_block  # type: ignore[method-assign, assignment] # what it passes on

    def body(self, name: str, body: Callable[[], object]) -> Callable[[], object]:
        """Get stuck before a launch, or return the body that does."""
        if self.step != self._at_step:
            return body
        kernel, block = BEFORE.get(self._place, ("", fail))
        if name == kernel:
            block()
        return INSTEAD.get(self._place, body) if name == "sample" else body


if __name__ == "__main__":
    on_cuda = sys.argv[sys.argv.index("--device") + 1] == "cuda"
    Sticking(CudaDevice if on_cuda else SimulatedDevice, sys.argv[1], int(sys.argv[2]))
    sys.argv = ["sglang-fence", *sys.argv[3:]]
    cli.main()
