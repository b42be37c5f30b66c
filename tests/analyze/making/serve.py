"""The program that is captured: the command line itself, and beside it, where asked for, a witness.

``python -m tests.analyze.making.serve [--witness FILE] [--spin-us US] run …``

The witness is a stream of its own. Wherever the observer copies the moment of an event, it waits for the same event and
then runs a kernel that does nothing. The tool gives that kernel a time, which it doesn't give the marker of a graph: so
the capture says when the marker passed, whatever the observer measured. Two things are measured first, and FILE gets
what the capture alone can't say of them: how late the witness's kernel starts behind work whose end the tool knows; and
how late an event reads that the host records when there is nothing left to wait for, against the call that the tool
knows (see ``lateness``).

``--spin-us`` makes every forward longer by a kernel that spins, so that the host is ahead of the device also under a
tool that slows it down.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from dataclasses import asdict
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import torch

from sglang_fence.cli import main
from sglang_fence.device.cuda import CudaDevice, CudaEvent, CudaStream
from sglang_fence.device.cuda_spinning import cuda_spinner
from sglang_fence.device.cuda_timing import CudaObserverStream, make_timed_event, open_driver
from sglang_fence.models.served import ServedModel
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
    """Runs a kernel behind each event that the observer copies.

    Args:
        file: gets what was calibrated, as JSON: ``late_record_us``, one a round, and the observer's own ``offsets``.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        # As the observer's own: a priority of its own keeps it from being another stream in disguise.
        self._stream: Any = torch.cuda.Stream(priority=-1)
        self._busy = CudaStream("busy", torch.cuda.Stream())
        self._told: dict[str, Any] = {}
        self._calibrate()
        self._told["late_record_us"] = self._late_records()
        self._write()

    def _calibrate(self) -> None:
        """Leave pairs in the capture: the end of a kernel, and the start of the witness's behind it."""
        for _ in range(ROUNDS):
            self._run_behind(self._keep_busy())
            torch.cuda.synchronize()

    def _late_records(self) -> list[float]:
        """Copy the moment of a kernel's end when it has long passed; return how late the copy reads, in µs."""
        observer = CudaObserverStream("late", torch.cuda.Stream(priority=-1), open_driver())
        in_time, copied = make_timed_event(), make_timed_event()
        found: list[float] = []
        for _ in range(ROUNDS):
            passed = self._keep_busy()
            in_time.record(self._busy)
            torch.cuda.synchronize()
            observer.wait_event(CudaEvent(passed))
            copied.record(observer)
            torch.cuda.synchronize()
            us = in_time.elapsed_us(copied)
            if us is not None:
                found.append(us)
        return found

    def _keep_busy(self) -> Any:  # noqa: ANN401 - torch's event
        event: Any = torch.cuda.Event()
        with torch.cuda.stream(self._busy.raw):
            torch.cuda._sleep(BUSY_CYCLES)
            event.record()
        return event

    def install(self) -> None:
        """Take part in every copy from now on, and write down what the observer calibrates."""
        reads_end, calibrate, run_behind = StepProbe.reads_end, CudaDevice.calibrate, self._run_behind

        def seen(probe: StepProbe, verdict: Any, event: Any, forward: Any) -> bool:  # noqa: ANN401 - of the device
            left = reads_end(probe, verdict, event, forward)
            if event is not None and probe._record.timed:
                run_behind(event.raw)
            return left

        def told(*streams: Any) -> Any:  # noqa: ANN401 - of the device
            offsets = calibrate(*streams)
            self._told["offsets"] = asdict(offsets)
            self._write()
            return offsets

        setattr(StepProbe, "reads_end", seen)  # noqa: B010 - only here
        setattr(CudaDevice, "calibrate", told)  # noqa: B010 - only here

    def _run_behind(self, event: Any) -> None:  # noqa: ANN401 - torch's event
        self._stream.wait_event(event)
        with torch.cuda.stream(self._stream):
            torch.cuda._sleep(1)

    def _write(self) -> None:
        self._file.write_text(json.dumps(self._told) + "\n", encoding="utf-8")


def lengthen(us: float) -> None:
    """Let every forward spin for so long before its head, whether it is captured in a graph or run kernel by kernel."""
    head, spin = ServedModel.head, cuda_spinner(CudaDevice())(us)

    def longer(model: ServedModel, acts: Any, lines: Any) -> None:  # noqa: ANN401 - the head's own
        spin()
        head(model, acts, lines)

    setattr(ServedModel, "head", longer)  # noqa: B010 - only here


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--witness", type=Path)
    parser.add_argument("--spin-us", type=float, default=0.0)
    given, sys.argv[1:] = parser.parse_known_args()
    offer_exporters()
    if given.spin_us:
        lengthen(given.spin_us)
    if given.witness is not None:
        Witness(given.witness).install()
    main()
