"""A process that drives the NVTX exporter: ``python emitting.py SCENARIO``. Its last line of output is JSON.

A recording observer sits beside the exporter, so what the tool heard is compared with what the hooks were told.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sglang_fence.contract import FenceKind
from sglang_fence.observe.exporting import ExportContext, make_exporter
from sglang_fence.observe.ledger import Ledger
from sglang_fence.observe.observer import HOOKS, Observer, Observers
from sglang_fence.observe.record import StepRecord
from sglang_fence.testing import RecordingObserver

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

STEPS = 100
IN_FLIGHT = 3
"""Steps between a barrier and the reading of its times."""


class Process:
    """The exporter, the recording observer, and the hooks as the probe calls them."""

    def __init__(self) -> None:
        self.exporter = make_exporter("nvtx", ExportContext(ledger=Ledger()))
        self.recorded = RecordingObserver()
        self.observers = Observers([self.exporter, self.recorded])
        self.said: dict[str, object] = {}

    @contextmanager
    def range(self, name: str, step: int) -> Generator[None]:
        """A phase."""
        for hook in self.observers.range_started:
            hook(name, step)
        try:
            yield
        finally:
            for hook in self.observers.range_ended:
                hook(name, step)

    def barrier(self, record: StepRecord) -> None:
        """The fence is enqueued."""
        with self.range("barrier", record.step):
            for hook in self.observers.barrier_applied:
                hook(record)

    def finish(self, record: StepRecord) -> None:
        """The step's times are read."""
        for hook in self.observers.step_finished:
            hook(record)

    def end(self) -> None:
        """The run is over."""
        for hook in self.observers.run_ended:
            hook()

    def report(self) -> None:
        """Print what happened."""
        self.said["overridden"] = [
            hook for hook in HOOKS if getattr(type(self.exporter), hook) is not getattr(Observer, hook)
        ]
        self.said["plain"] = type(self.exporter) is Observer
        self.said["ranges"] = self.recorded.ranges
        self.said["errors"] = self.observers.errors
        sys.stdout.write(json.dumps(self.said) + "\n")


def a_record(step: int, fence: FenceKind, slack_us: float | None = None) -> StepRecord:
    """A step whose barrier stands."""
    record = StepRecord(None)
    record.step = step
    record.fence = fence
    record.timed = slack_us is not None
    record.slack_us = slack_us
    return record


def one_step(process: Process, step: int, *, fail: bool = False) -> None:
    """Every phase of a step of a breakable graph; ``fail``: the backend raises in its second segment."""
    with process.range("schedule", step):
        pass
    with process.range("launch", step):
        with process.range("out_graph_metadata", step):
            pass
        with process.range("replay", step):
            for name in ("segment", "eager_segment", "segment"):
                with process.range(name, step):
                    if fail and name == "eager_segment":
                        msg = "the backend is broken"
                        raise RuntimeError(msg)
        with process.range("publish", step):
            pass
    kinds = (FenceKind.FINE, FenceKind.COARSE, FenceKind.DISABLED, FenceKind.ABSENT)
    process.barrier(a_record(step, kinds[step % 4]))
    with process.range("process_results", step), process.range("collect", step):
        pass


def steps(process: Process) -> None:
    """Capture, then serve."""
    with process.range("capture", -1), process.range("in_graph_metadata", -1):
        pass
    for step in range(STEPS):
        one_step(process, step)
    process.end()


def raising(process: Process) -> None:
    """The backend raises in the middle, and the process serves on."""
    for step in range(STEPS):
        try:
            one_step(process, step, fail=step == STEPS // 2)
        except RuntimeError:
            process.said["raised"] = step
    process.end()


def failing(process: Process) -> None:
    """A start that NVTX can't take, inside ranges that it can; and an end that never had a start."""
    for hook in process.observers.range_ended:
        hook("replay", 0)
    with process.range("launch", 1):
        with process.range("replay", 2**63), process.range("segment", 1):
            pass
        with process.range("publish", 1):
            pass


def left_open(process: Process) -> None:
    """The run ends inside a range."""
    for name in ("launch", "replay"):
        for hook in process.observers.range_started:
            hook(name, 5)
    process.end()


def unlisted(process: Process) -> None:
    """More names than a tool should have to keep."""
    for number in range(STEPS):
        with process.range(f"mine_{number}", number):
            pass


def slack(process: Process) -> None:
    """Slack becomes known some steps after its barrier; the last step has none, and the first was never timed."""
    moments: list[tuple[int, int]] = []
    records = [a_record(step, FenceKind.FINE, step / 4 if step else None) for step in range(STEPS)]
    for step, record in enumerate(records):
        before = time.monotonic_ns()
        process.barrier(record)
        moments.append((before, time.monotonic_ns()))
        if step >= IN_FLIGHT:
            process.finish(records[step - IN_FLIGHT])
    records[-1].slack_us = None
    for record in records[-IN_FLIGHT:]:
        process.finish(record)
    process.end()
    process.said["moments"] = moments


SCENARIOS: dict[str, Callable[[Process], None]] = {
    scenario.__name__: scenario for scenario in (steps, raising, failing, left_open, unlisted, slack)
}


def main() -> None:
    """Run a scenario."""
    process = Process()
    SCENARIOS[sys.argv[1]](process)
    process.report()


if __name__ == "__main__":
    main()
