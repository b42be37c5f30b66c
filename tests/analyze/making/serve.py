"""The program that is captured: the command line itself, and beside it, where asked for, a witness.

``python -m tests.analyze.making.serve [--witness] run …``

The witness is a stream of its own. Wherever the observer copies the moment of an event, it waits for the same event and
then runs a kernel that does nothing. The tool gives that kernel a time, which it doesn't give the marker of a graph: so
the capture says when the marker passed, whatever the observer measured. How late such a kernel starts is measured
first, behind kernels of the forward kind whose end the tool knows.
"""

from __future__ import annotations

import sys
import tomllib
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import torch

from sglang_fence.cli import main
from sglang_fence.observe import exporting
from sglang_fence.observe.probe import StepProbe

ROUNDS = 200
"""Calibrations of the witness."""

BUSY_CYCLES = 100_000
"""Of the kernel that a calibration stands behind: about 50 µs."""


def offer_exporters() -> None:
    """Find exporters where the project isn't installed: its settings list them."""
    if entry_points(group=exporting.GROUP):
        return
    settings = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))
    listed = settings["project"]["entry-points"][exporting.GROUP]
    found = [EntryPoint(name, value, exporting.GROUP) for name, value in listed.items()]
    setattr(exporting, "entry_points", lambda group: found)  # noqa: ARG005, B010 - called with the group's name


class Witness:
    """Runs a kernel behind each event that the observer copies."""

    def __init__(self) -> None:
        # As the observer's own: a priority of its own keeps it from being another stream in disguise.
        self._stream: Any = torch.cuda.Stream(priority=-1)
        self.calibrate()

    def calibrate(self) -> None:
        """Leave pairs in the capture: the end of a kernel, and the start of the witness's behind it."""
        busy: Any = torch.cuda.Stream()
        for _ in range(ROUNDS):
            event: Any = torch.cuda.Event()
            with torch.cuda.stream(busy):
                torch.cuda._sleep(BUSY_CYCLES)
                event.record()
            self._run_behind(event)
            torch.cuda.synchronize()

    def install(self) -> None:
        """Take part in every copy from now on."""
        reads_end, run_behind = StepProbe.reads_end, self._run_behind

        def seen(probe: StepProbe, verdict: Any, event: Any, forward: Any) -> bool:  # noqa: ANN401 - of the device
            left = reads_end(probe, verdict, event, forward)
            if event is not None and probe._record.timed:
                run_behind(event.raw)
            return left

        setattr(StepProbe, "reads_end", seen)  # noqa: B010 - only here

    def _run_behind(self, event: Any) -> None:  # noqa: ANN401 - torch's event
        self._stream.wait_event(event)
        with torch.cuda.stream(self._stream):
            torch.cuda._sleep(1)


if __name__ == "__main__":
    offer_exporters()
    if "--witness" in sys.argv:
        sys.argv.remove("--witness")
        Witness().install()
    main()
