"""What is made when a scheduler's loop begins: facts, device times, exporters. Each may fail alone, and is left out."""

from __future__ import annotations

import logging
import os
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from sglang_fence.observe.exporting import ExportContext, make_exporter
from sglang_fence.observe.observer import Observer, Observers
from sglang_fence.observe.sampling import Sampling
from sglang_fence.observe.standing import Facts
from sglang_fence.sglang_plugin.control import ControlFile
from sglang_fence.sglang_plugin.facts import facts_of
from sglang_fence.sglang_plugin.host_traces import HostTraces
from sglang_fence.sglang_plugin.labels import place, server_labels
from sglang_fence.sglang_plugin.probing import install_probe, tell_timing
from sglang_fence.sglang_plugin.streams import CudaStreams

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglang_fence.observe.probe import StepProbe
    from sglang_fence.sglang_plugin.session import Session
    from sglang_fence.sglang_plugin.shapes import SchedulerLike

logger = logging.getLogger(__name__)

_Made = TypeVar("_Made")

MULTIPROCESS = "PROMETHEUS_MULTIPROC_DIR"


class Started:
    """What runs while the scheduler serves."""

    def __init__(self, probe: StepProbe, facts: Facts, closing: list[Callable[[], None]]) -> None:
        self.facts = facts
        self._probe = probe
        self._closing = closing

    def end(self) -> None:
        """End it, the exporters last: they write what the probe still has."""
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
    observers = host_traces.observers = Observers(installed, session.ledger.health.errors)
    for hook in observers.run_started:
        hook(facts)
    live = switches.control is not None
    install_probe(session.steps, scheduler, observers, sampling, session.ledger.health, streams, live=live)
    closing: list[Callable[[], None]] = []
    metrics = attempt("metrics", lambda: _metrics(session))
    close = getattr(metrics, "close", None)
    if close is not None:
        closing.append(close)
    if switches.control is not None:
        told = partial(tell_timing, facts, sampling, possible=streams is not None)
        closing.append(ControlFile(switches.control, sampling, told).close)
    return Started(session.steps.probe, facts, closing)


def attempt(what: str, make: Callable[[], _Made]) -> _Made | None:
    """Return what is made, or None with a warning."""
    try:
        return make()
    except Exception as error:
        logger.warning("sglang-fence: %s: left out (%s: %s)", what, type(error).__name__, error, exc_info=True)
        return None


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
