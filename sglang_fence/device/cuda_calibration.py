"""What taking device times adds by itself, measured at start on an idle device. The only place that synchronises."""

from __future__ import annotations

import statistics
from time import perf_counter_ns
from typing import TYPE_CHECKING

import torch

from sglang_fence.device.cuda_timing import make_timed_event
from sglang_fence.observe.device_times import Offsets

if TYPE_CHECKING:
    from sglang_fence.device.cuda import CudaStream
    from sglang_fence.device.cuda_timing import CudaObserverStream
    from sglang_fence.observe.timing import TimedEvent

_ROUNDS = 40
_BUSY_CYCLES = 200_000  # about 0.1 ms: longer than the host takes to enqueue a round


def calibrate(forward: CudaStream, schedule: CudaStream, observer: CudaObserverStream) -> Offsets:
    """Measure; takes some tens of ms. The streams are idle."""
    torch.cuda.synchronize()
    copies = [_copy_us(forward, schedule, observer, busy=False) for _ in range(_ROUNDS)]
    busy_copies = [_copy_us(forward, schedule, observer, busy=True) for _ in range(_ROUNDS)]
    waits = [_idle_wait_us(forward, schedule) for _ in range(_ROUNDS)]
    gaps = [_gap_us(forward, schedule) for _ in range(_ROUNDS)]
    round_trips, launches = zip(*(_launch(forward, observer) for _ in range(_ROUNDS)), strict=True)
    return Offsets(
        marker_copy_us=max(0.0, statistics.median(copies)),
        marker_copy_busy_us=max(0.0, statistics.median(busy_copies)),
        idle_wait_us=max(0.0, statistics.median(waits)),
        fine_gap_us=max(0.0, statistics.median(gaps)),
        launch_us=max(0.0, statistics.quantiles(launches, n=10)[-1]) + 1.0,
        round_trip_ns=min(round_trips),
    )


def _copy_us(forward: CudaStream, schedule: CudaStream, observer: CudaObserverStream, *, busy: bool) -> float:
    """How much later the copy of a moment reads than the moment, which is taken as the middle between two events."""
    before, behind, copied, plain = make_timed_event(), make_timed_event(), make_timed_event(), torch.cuda.Event()
    with torch.cuda.stream(forward.raw):
        torch.cuda._sleep(_BUSY_CYCLES)  # noqa: SLF001 - nothing public keeps a stream busy without memory
        before.record(forward)
        plain.record()
        behind.record(forward)
        torch.cuda._sleep(_BUSY_CYCLES)  # noqa: SLF001 - as above
    observer.raw.wait_event(plain)
    copied.record(observer)
    if busy:
        with torch.cuda.stream(schedule.raw):
            torch.cuda._sleep(2 * _BUSY_CYCLES)  # noqa: SLF001 - as above
    else:
        schedule.raw.wait_event(plain)
    return (_elapsed(before, copied) + _elapsed(behind, copied)) / 2


def _idle_wait_us(forward: CudaStream, schedule: CudaStream) -> float:
    """How long a wait reads that has nothing to wait for."""
    before, behind, plain = make_timed_event(), make_timed_event(), torch.cuda.Event()
    plain.record(forward.raw)
    torch.cuda.synchronize()
    before.record(schedule)
    schedule.raw.wait_event(plain)
    behind.record(schedule)
    return _elapsed(before, behind)


def _gap_us(forward: CudaStream, schedule: CudaStream) -> float:
    """The gap between two forwards when all that the second waits for is there long before it may start."""
    end, start, prepared = make_timed_event(), make_timed_event(), torch.cuda.Event()
    with torch.cuda.stream(forward.raw):
        torch.cuda._sleep(_BUSY_CYCLES)  # noqa: SLF001 - as above
    end.record(forward)
    prepared.record(schedule.raw)
    forward.raw.wait_event(prepared)
    start.record(forward)
    return _elapsed(end, start)


def _launch(forward: CudaStream, observer: CudaObserverStream) -> tuple[int, float]:
    """The round trip of a base, in ns; and how much later than by the clock an event on an idle stream reads, in µs."""
    base, event = make_timed_event(), make_timed_event()
    torch.cuda.synchronize()
    asked = perf_counter_ns()
    base.record(observer)
    while base.elapsed_us(base) is None:
        pass
    round_trip = perf_counter_ns() - asked
    launched = perf_counter_ns()
    event.record(forward)
    return round_trip, _elapsed(base, event) - (launched - asked) / 1e3


def _elapsed(start: TimedEvent, end: TimedEvent) -> float:
    torch.cuda.synchronize()
    elapsed = start.elapsed_us(end)
    if elapsed is None:
        msg = "an event isn't done on a device that was synchronised"
        raise RuntimeError(msg)
    return elapsed
