"""From the hooks to the core's probe: SGLang's streams and events, dressed as the core takes them."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import TYPE_CHECKING, Any

from sglang_fence.observe.clock import DeviceClock
from sglang_fence.observe.device_times import DeviceTimes
from sglang_fence.observe.observer import Observers
from sglang_fence.observe.probe import StepProbe

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from sglang_fence.device.cuda import CudaDevice, CudaStream
    from sglang_fence.observe.flight.ring import FlightRing
    from sglang_fence.observe.sampling import Sampling
    from sglang_fence.observe.standing import Facts, Health
    from sglang_fence.sglang_plugin.shapes import SchedulerLike
    from sglang_fence.sglang_plugin.steps import Verdict


class CoreProbe:
    """The core's probe for one scheduler.

    Args:
        probe: the core's.
        streams: SGLang's streams, dressed; None on a device without timing events, where any stream does.
        marks: whether ranges may be heard, now or after a change of the sampling.
    """

    def __init__(self, probe: StepProbe, streams: CudaStreams | None, *, marks: bool) -> None:
        self._probe = probe
        self._streams = streams
        self.marks = marks
        self.step_started = probe.step_started
        self.resolved = probe.resolved
        self.launched = probe.launched
        self.link = probe.link
        self.recording = probe.recording
        self.progress = probe.progress
        self.at_barrier = probe.at_barrier
        self.before_wait = probe.before_wait
        self.after_wait = probe.after_wait
        self.no_barrier = probe.no_barrier
        self.drain = probe.drain
        self.idle = probe.idle
        self.close = probe.close

    @property
    def core(self) -> StepProbe:
        """The core's probe."""
        return self._probe

    @property
    def traced(self) -> bool:
        """Whether the step in progress is traced."""
        return self._probe.traced

    def forward_started(self, stream: object) -> None:
        """Its first work is enqueued on ``stream`` next."""
        streams = self._streams
        self._probe.forward_started(stream if streams is None else streams.dressed(stream))

    def reads_end(self, verdict: Verdict, event: object | None, forward: object) -> None:
        """Its shared reads end at ``event``, or (None) nobody knows where."""
        streams = self._streams
        if streams is None:
            self._probe.reads_end(verdict, event, forward)
        else:
            dressed = None if event is None else streams.event(event)
            self._probe.reads_end(verdict, dressed, streams.dressed(forward))

    def range(self, name: str) -> AbstractContextManager[None] | None:
        """Mark a phase; None where nobody would hear of it."""
        probe = self._probe
        if not (probe.traced or probe.observers.range_started):
            return None
        marked = probe.range(name)
        marked.__enter__()
        return marked


def no_probe() -> CoreProbe:
    """Return one that nobody hears: before a loop runs, and after the last one."""
    return CoreProbe(StepProbe(Observers()), None, marks=False)


class CudaStreams:
    """SGLang's streams and events as the core's, dressed once for each stream."""

    def __init__(self) -> None:
        from sglang_fence.device import cuda  # noqa: PLC0415 - where there is CUDA alone

        self._cuda = cuda
        self._dressed: dict[object, CudaStream] = {}
        self.device: CudaDevice = cuda.CudaDevice()
        self.event = cuda.CudaEvent

    def dressed(self, raw: Any, name: str = "forward") -> CudaStream:  # noqa: ANN401 - torch's stream
        """Return the core's stream for SGLang's."""
        stream = self._dressed.get(id(raw))
        if stream is None:
            stream = self._dressed[id(raw)] = self._cuda.CudaStream(name, raw)
        return stream


def make_probe(
    scheduler: SchedulerLike,
    observers: Observers,
    sampling: Sampling,
    health: Health,
    streams: CudaStreams | None,
    *,
    live: bool,
    ring: FlightRing | None = None,
) -> CoreProbe:
    """Make the probe; with device times where there are ``streams`` to take them on.

    Its own cost is left out of ``health``: the hooks measure all that they do, the probe included.
    """
    times = None if streams is None else device_times(scheduler, streams, health)
    apart = dataclasses.replace(health, cost_ns=Counter())
    probe = StepProbe(observers, times, sampling=sampling, health=apart, live=live, ring=ring)
    return CoreProbe(probe, streams, marks=live or sampling.traces or bool(observers.range_started))


def device_times(scheduler: SchedulerLike, streams: CudaStreams, health: Health) -> DeviceTimes:
    """Calibrate, on streams that are idle yet; and make what copies moments, on a stream of another priority."""
    device = streams.device
    forward, schedule = (
        streams.dressed(scheduler.forward_stream),
        streams.dressed(scheduler.schedule_stream, "schedule"),
    )
    observer = device.observer_stream("observer")
    offsets = device.calibrate(forward, schedule, observer)
    clock = DeviceClock(device, device.observer_stream("clock"), virtual=False, round_trip_ns=offsets.round_trip_ns)
    health.calibration_us = {"marker_copy": offsets.marker_copy_us, "idle_wait": offsets.idle_wait_us}
    health.clock_error_ns = clock.error_ns
    return DeviceTimes(device, schedule, observer, clock, offsets)


def tell_timing(facts: Facts, sampling: Sampling, *, possible: bool) -> None:
    """Say whether device times are taken, how often, and what decided it."""
    facts.timing_every = sampling.timing_every
    facts.timing_enabled = possible and sampling.timing_every > 0
    if not possible:
        facts.timing_why = "no_timing_events"
    else:
        facts.timing_why = "timing_events" if sampling.timing_every else "switch"
