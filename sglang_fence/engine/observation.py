"""What an engine gives its observers: a probe with device times, and the facts that are decided at start."""

from __future__ import annotations

import os
from time import perf_counter_ns
from typing import TYPE_CHECKING

import torch

import sglang_fence
from sglang_fence.contract import ForwardMode
from sglang_fence.observe.clock import DeviceClock
from sglang_fence.observe.device_times import DeviceTimes
from sglang_fence.observe.ledger import Facts, Health, Ledger
from sglang_fence.observe.observer import Observers
from sglang_fence.observe.probe import StepProbe
from sglang_fence.observe.sampling import Sampling

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sglang_fence.attention.base import AttentionBackend
    from sglang_fence.device.protocol import DeviceModule, Stream
    from sglang_fence.engine.options import EngineOptions
    from sglang_fence.environ import Switches
    from sglang_fence.fence.barrier import FencePolicy
    from sglang_fence.observe.flight.ring import FlightRing
    from sglang_fence.observe.observer import Observer

DECLARED_MODES = tuple(mode for mode in ForwardMode if mode is not ForwardMode.IDLE)
"""Modes for which backends are asked what they declare."""


def make_probe(
    device: DeviceModule,
    observers: Sequence[Observer],
    sampling: Sampling | None,
    forward: Stream,
    schedule: Stream,
    ring: FlightRing | None = None,
) -> StepProbe:
    """Make the probe of one engine. Without observers it is off, and nothing is made for it."""
    virtual = device.virtual_seconds() is not None
    if sampling is None:
        # In virtual time observing takes none, so that every step can be timed.
        sampling = Sampling(timing_every=1) if virtual else Sampling()
    ledger = next((one for one in observers if isinstance(one, Ledger)), None)
    health = Health() if ledger is None else ledger.health
    fan_out = Observers(observers, health.errors)
    times = None
    if fan_out.any and (sampling.timing_every or sampling.trace_ratio or sampling.trace_coarse):
        observer = device.observer_stream("observer")
        offsets = device.calibrate(forward, schedule, observer)
        idle = device.observer_stream("clock")
        clock = DeviceClock(device, idle, virtual=virtual, round_trip_ns=offsets.round_trip_ns)
        times = DeviceTimes(device, schedule, observer, clock, offsets)
        health.calibration_us = {"marker_copy": offsets.marker_copy_us, "idle_wait": offsets.idle_wait_us}
        health.clock_error_ns = clock.error_ns
    now = device.host_ns if virtual else perf_counter_ns  # the same clock, and a call less each time
    probe = StepProbe(fan_out, times, sampling=sampling, health=health, now=now, ring=ring)
    if ledger is not None and not virtual and device.driver_library is not None:
        probe.quicken(ledger)
    return probe


def announce(
    probe: StepProbe,
    device: DeviceModule,
    options: EngineOptions,
    policy: FencePolicy,
    backends: Iterable[AttentionBackend],
) -> None:
    """Tell observers what was decided at start."""
    if not probe.on:
        return
    declarations = {
        (backend.name, mode, backend.shared_read_ends(mode)): None for backend in backends for mode in DECLARED_MODES
    }
    facts = Facts(
        config=config_labels(device, options),
        barrier_enabled=policy.enabled and options.overlap,
        barrier_why=policy.cause,
        declarations=tuple(declarations),
        timing_enabled=probe.timed,
        timing_why="timing_events" if probe.timed else "switch",
        timing_every=probe.sampling.timing_every,
        loop="pdmux" if options.pdmux else "overlap" if options.overlap else "normal",
    )
    probe.run_started(facts)


def config_labels(device: DeviceModule, options: EngineOptions) -> dict[str, str]:
    """Values of the labels of ``sglang_fence_config_info``."""
    return {
        "version": sglang_fence.__version__,
        "torch": torch.__version__,
        "sglang": "",
        "device": device.name,
        "backend": options.attention,
        "algorithm": options.speculative,
        "device_max_connections": os.environ.get("CUDA_DEVICE_MAX_CONNECTIONS", ""),
        "fence": options.fence or "",
        **switch_labels(options.switches),
    }


def switch_labels(switches: Switches) -> dict[str, str]:
    """The switches, as labels."""
    return {
        "enable_war_barrier": str(switches.enable_war_barrier).lower(),
        "force_coarse_war_barrier": str(switches.force_coarse_war_barrier).lower(),
        "enable_prefill_war_read_done": str(switches.enable_prefill_war_read_done).lower(),
    }
