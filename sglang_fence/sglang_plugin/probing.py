"""The core's probe for one scheduler: its device times, its sampling, and what is said of both."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import TYPE_CHECKING

from sglang_fence.observe.clock import DeviceClock
from sglang_fence.observe.device_times import DeviceTimes
from sglang_fence.observe.probe import StepProbe

if TYPE_CHECKING:
    from sglang_fence.observe.flight.ring import FlightRing
    from sglang_fence.observe.observer import Observers
    from sglang_fence.observe.sampling import Sampling
    from sglang_fence.observe.standing import Facts, Health
    from sglang_fence.sglang_plugin.shapes import SchedulerLike
    from sglang_fence.sglang_plugin.steps import Steps
    from sglang_fence.sglang_plugin.streams import CudaStreams


START_EVERY = 2048
"""The start of a forward, and so its length and the gap before it, is timed on each so-many-th step at the most: such a
step, and the one before, go the long way, where nothing is told by repetition. Of a step behind a timed coarse one only
the start is taken."""


def install_probe(
    steps: Steps,
    scheduler: SchedulerLike,
    observers: Observers,
    sampling: Sampling,
    health: Health,
    streams: CudaStreams | None,
    *,
    live: bool,
    ring: FlightRing | None = None,
) -> DeviceTimes | None:
    """Let ``steps`` be observed; with device times where there are ``streams`` to take them on.

    Returns what they are taken with.

    The probe's own cost is left out of ``health``: the hooks measure all that they do, the probe included.
    """
    times = None if streams is None else device_times(scheduler, streams, health)
    apart = dataclasses.replace(health, cost_ns=Counter())

    def follow_clock() -> None:
        health.clock_error_ns = apart.clock_error_ns  # a number, which the probe renews in its own copy

    steps.probe = StepProbe(
        observers, times, sampling=sampling, health=apart, live=live, ring=ring, start_every=START_EVERY
    )
    if ring is not None:
        steps.current.keep(len(ring.records))
        steps.current.progress, ring.repeated = steps.probe.progress, steps.current
    steps.streams = streams
    steps.marks = live or sampling.traces or bool(observers.range_started)
    steps.when_read = None if times is None else follow_clock
    return times


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
