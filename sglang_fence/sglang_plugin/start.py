"""What is made when a scheduler's loop begins: facts, device times, exporters. Each may fail alone, and is left out."""

from __future__ import annotations

import logging
import os
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from sglang_fence.device.cuda_profiler import cuda_profiler
from sglang_fence.observe.exporting import ExportContext, make_exporter
from sglang_fence.observe.flight.ring import FlightRing
from sglang_fence.observe.observer import Observer, Observers
from sglang_fence.observe.profiling import ProfiledSteps
from sglang_fence.observe.sampling import Sampling
from sglang_fence.observe.standing import Facts
from sglang_fence.sglang_plugin.control import ControlFile
from sglang_fence.sglang_plugin.facts import facts_of
from sglang_fence.sglang_plugin.flying import started_recorder
from sglang_fence.sglang_plugin.host_traces import HostTraces
from sglang_fence.sglang_plugin.labels import place, server_labels
from sglang_fence.sglang_plugin.probing import install_probe, tell_timing
from sglang_fence.sglang_plugin.profiling import TimedProfile
from sglang_fence.sglang_plugin.repeated_times import take_times
from sglang_fence.sglang_plugin.streams import CudaStreams

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sglang_fence.device.cuda_profiler import Profiler
    from sglang_fence.observe.device_times import DeviceTimes
    from sglang_fence.observe.flight.recorder import FlightRecorder
    from sglang_fence.observe.probe import StepProbe
    from sglang_fence.sglang_plugin.session import Session
    from sglang_fence.sglang_plugin.shapes import SchedulerLike

logger = logging.getLogger(__name__)

_Made = TypeVar("_Made")

MULTIPROCESS = "PROMETHEUS_MULTIPROC_DIR"


class Started:
    """What runs while the scheduler serves."""

    def __init__(
        self,
        probe: StepProbe,
        facts: Facts,
        closing: list[Callable[[], None]],
        recorder: FlightRecorder | None = None,
    ) -> None:
        self.facts = facts
        self._recorder = recorder
        self._probe = probe
        self._closing = closing

    def end(self, error: BaseException | None) -> None:
        """End it, the exporters last: they write what the probe still has. ``error``: what ended the serving."""
        if self._recorder is not None and isinstance(error, Exception):
            self._recorder.crashed(type(error))
        self._probe.close()
        for close in self._closing:
            close()


def start(session: Session, scheduler: SchedulerLike) -> Started:
    """Make all of it. What can't be made is logged and left out."""
    switches = session.switches
    facts = attempt("what was decided at start", lambda: facts_of(session.border, scheduler)) or Facts()
    streams = attempt("device times", CudaStreams) if session.border.is_cuda() else None
    sampling = Sampling(timing_every=switches.timing_every, trace_ratio=switches.trace_ratio)
    tell_timing(facts, sampling, possible=streams is not None)
    installed: list[Observer] = [session.ledger]
    host_traces = HostTraces()
    if streams is None and switches.traces:
        installed.append(host_traces)
    for name, wanted in (("nvtx", switches.nvtx), ("otel", switches.traces)):
        exporter = attempt(f"the exporter {name}", partial(_exporter, session, name)) if wanted else None
        if exporter is not None:
            installed.append(exporter)
    profiler = attempt("profiling", cuda_profiler) if _may_profile(session) else None
    if switches.profile_steps is not None and profiler is not None:
        installed.append(ProfiledSteps(switches.profile_steps, *profiler))
    observers = host_traces.observers = Observers(installed, session.ledger.health.errors)
    for hook in observers.run_started:
        hook(facts)
    live = switches.control is not None
    ring = FlightRing(switches.flight_recorder) if switches.flight_recorder else None
    health, steps = session.ledger.health, session.steps
    times = install_probe(steps, scheduler, observers, sampling, health, streams, live=live, ring=ring)
    probe = steps.probe
    attempt("device times of repeated steps", partial(_time_repeated, session, scheduler, times, streams))
    closing: list[Callable[[], None]] = []
    recorder = None
    if ring is not None:
        recorder = attempt("the flight recorder", lambda: started_recorder(probe, switches))
    if recorder is not None:
        closing.append(recorder.close)
    metrics = attempt("metrics", lambda: _metrics(session))
    close = getattr(metrics, "close", None)
    if close is not None:
        closing.append(close)
    if switches.control is not None:
        told = partial(tell_timing, facts, sampling, possible=streams is not None)
        closing.extend(_control(switches.control, sampling, told, profiler))
    return Started(probe, facts, closing, recorder)


def _time_repeated(
    session: Session, scheduler: SchedulerLike, times: DeviceTimes | None, streams: CudaStreams | None
) -> None:
    steps = session.steps
    if times is not None and streams is not None:
        forward = streams.dressed(scheduler.forward_stream)
        steps.repeated_times = take_times(steps.current, times, forward, session.ledger, steps.probe.progress)


def _control(
    file: Path, sampling: Sampling, told: Callable[[], None], profiler: Profiler | None
) -> list[Callable[[], None]]:
    """Follow the control file; return what ends that, and what it may have begun."""
    if profiler is None:
        return [ControlFile(file, sampling, told, profile=None).close]
    profile = TimedProfile(profiler)
    return [ControlFile(file, sampling, told, profile=profile.begin).close, profile.close]


def attempt(what: str, make: Callable[[], _Made]) -> _Made | None:
    """Return what is made, or None with a warning."""
    try:
        return make()
    except Exception as error:
        logger.warning("sglang-fence: %s: left out (%s: %s)", what, type(error).__name__, error, exc_info=True)
        return None


def _may_profile(session: Session) -> bool:
    """Whether a capture is asked for, or may be later, where that can't fail for want of a GPU."""
    switches = session.switches
    return switches.profile_steps is not None or (switches.control is not None and session.border.is_cuda())


def _exporter(session: Session, name: str) -> Observer:
    exporter = make_exporter(name, ExportContext(ledger=session.ledger, labels=server_labels()))
    session.ledger.health.exporters[name] = exporter
    return exporter


def _metrics(session: Session) -> Observer | None:
    """Export to SGLang's own ``/metrics``, which is there with ``--enable-metrics``, or else to a port of our own."""
    port = None if MULTIPROCESS in os.environ else session.switches.metrics_port
    if port is None and MULTIPROCESS not in os.environ:
        logger.info("sglang-fence: no metrics: start with --enable-metrics, or set SGLANG_FENCE_METRICS_PORT")
        return None
    context = ExportContext(
        ledger=session.ledger,
        labels=server_labels(),
        metrics_host="0.0.0.0",  # noqa: S104 - Prometheus asks from another machine, as it asks SGLang
        metrics_port=None if port is None else port + place(),
    )
    return make_exporter("prometheus", context)
