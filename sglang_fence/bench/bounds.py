"""What an ideal fence could reach: a step's parts, measured one by one, and the shortest period that they allow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sglang_fence.graphs.full import FullGraph
from sglang_fence.graphs.parts import Part

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglang_fence.bench.overlap import StepShape
    from sglang_fence.device.cuda_spinning import Spinner
    from sglang_fence.device.protocol import DeviceModule, Stream

_HEAD_START_US = 2_000.0
"""The device is kept busy for so long while the host enqueues what is measured behind it."""


@dataclass(frozen=True, slots=True)
class PartTimes:
    """What the parts of a step take in µs, each alone, back to back."""

    forward_us: float
    """The step on the forward stream, in a graph without a marker."""
    schedule_us: float
    """The preparation on the schedule stream."""

    def ideal_us(self, shape: StepShape, host_us: float) -> float:
        """Return the shortest period of a step, in µs, that a fence could lead to without tearing data.

        An ideal fence holds the schedule stream until the shared reads of the running step end, costs nothing, and
        needs no marker. What then bounds the period P of a loop with two steps in flight:

        * the forward stream runs one step after the other: P ≥ forward;
        * so does the host: P ≥ host;
        * the host waits for step N − 1 to end, prepares step N + 1 and has it run: 2 P ≥ prepare + schedule + forward;
        * the schedule stream waits for the reads of step N, and step N + 1 for the schedule stream:
          P ≥ reads + schedule.

        Args:
            shape: what the step was asked to take; its ``prepare_us`` and ``reads_us`` are in the bound.
            host_us: what the host needs a step, all in all, blocking left out.
        """
        around = (shape.prepare_us + self.schedule_us + self.forward_us) / 2
        return max(self.forward_us, host_us, around, shape.reads_us + self.schedule_us)


def measure_parts(
    device: DeviceModule,
    spinner: Spinner,
    shape: StepShape,
    streams: tuple[Stream, Stream],
    *,
    repeats: int = 50,
) -> PartTimes:
    """Measure the parts of a step on the device's own clock.

    Args:
        device: where.
        spinner: makes kernels of known length.
        shape: of the step.
        streams: schedule and forward stream.
        repeats: of each part; the mean is taken.
    """
    schedule_stream, forward_stream = streams
    read, compute = spinner(shape.reads_us), spinner(shape.compute_us)
    after, prepare = spinner(shape.after_us), spinner(shape.schedule_us)
    with device.stream(forward_stream):
        parts = [
            Part(lambda: device.launch("bench_reads", read)),
            Part(lambda: device.launch("bench_compute", compute)),
        ]
        graph = FullGraph(device, "bench_unmarked", parts, lambda: None)

    def forward() -> None:
        graph.replay()
        if shape.after_us:
            device.launch("bench_after", after)

    head_start = spinner(_HEAD_START_US)

    def timed(stream: Stream, part: Callable[[], None]) -> float:
        make_event: Any = device.Event  # of its own device, as those that it is compared with
        begin, end = make_event(enable_timing=True), make_event(enable_timing=True)
        with device.stream(stream):
            part()
            device.launch("bench_head_start", head_start)
            begin.record()
            for _ in range(repeats):
                part()
            end.record()
        device.synchronize()
        return float(begin.elapsed_time(end)) * 1e3 / repeats

    schedule = timed(schedule_stream, lambda: device.launch("bench_schedule", prepare)) if shape.schedule_us else 0.0
    return PartTimes(timed(forward_stream, forward), schedule)
