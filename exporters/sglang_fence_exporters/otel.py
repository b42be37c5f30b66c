"""OpenTelemetry: each sampled step as a trace, made after the fact.

The serving thread only appends to a queue; a thread of our own takes steps on, to a process that builds and sends
their spans, or to the provider that the serving process has. The queue is bounded: what has no room is turned away and
counted, and so is whatever a collector doesn't take. How spans look is said in docs/tracing.md and, name by name, in
the catalogue.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from opentelemetry.trace import NoOpTracerProvider, ProxyTracerProvider, get_tracer_provider

from sglang_fence.observe.observer import Observer
from sglang_fence_exporters.otel_address import find_address
from sglang_fence_exporters.otel_delivery import OwnDelivery, ProcessDelivery
from sglang_fence_exporters.otel_ids import StepIds
from sglang_fence_exporters.otel_in_process import InProcess
from sglang_fence_exporters.otel_limits import end_timeout_s, grace_s
from sglang_fence_exporters.otel_provider import checked_resource
from sglang_fence_exporters.otel_route import PAUSE_S
from sglang_fence_exporters.otel_sender_process import SenderProcess
from sglang_fence_exporters.otel_spans import CANT_BUILD, SpanBuilder
from sglang_fence_exporters.otel_talk import Hello

if TYPE_CHECKING:
    from sglang_fence.observe.exporting import ExportContext
    from sglang_fence.observe.ledger import Ledger
    from sglang_fence.observe.trace import StepTrace
    from sglang_fence_exporters.otel_route import Route

logger = logging.getLogger(__name__)

QUEUE_STEPS = 1024
"""So many steps may wait for their spans."""

END_POLL_S = 0.05
"""How often the thread looks for room once the run has ended."""


class OpenTelemetryExporter(Observer):
    """Turns sampled steps into spans."""

    def __init__(self, ledger: Ledger, route: Route, end_timeout: float) -> None:
        """Start the thread that takes steps on.

        Args:
            ledger: gets each trace's identifier, as an exemplar.
            route: where steps are taken.
            end_timeout: what :meth:`run_ended` may take, in seconds.
        """
        self._ledger = ledger
        self._route = route
        self._end_timeout = end_timeout
        self._queue: deque[StepTrace] = deque()
        self._room = QUEUE_STEPS
        self._turned_away = 0
        self._taken = 0
        self._broken = 0
        self._left = 0
        self._ending = threading.Event()
        self._given_up = threading.Event()
        self._thread = threading.Thread(target=self._work, name="sglang-fence-otel", daemon=True)
        self._thread.start()

    def step_traced(self, trace: StepTrace) -> None:
        """Queue it, if there is room."""
        if len(self._queue) >= self._room:
            self._turned_away += 1
            return
        self._taken += 1
        self._queue.append(trace)

    def run_ended(self) -> None:
        """Send what waits; after the end's time, give up and count what is left as dropped."""
        self._room = 0
        grace = grace_s(self._end_timeout)
        self._ending.set()
        self._route.hurry()
        self._thread.join(self._end_timeout - grace)
        if self._thread.is_alive():
            self._given_up.set()
            self._route.abort(grace / 2)
            self._thread.join(grace)
        self._left = max(0, self._taken - self._broken - self._route.lost - self._route.settled)

    @property
    def dropped_steps(self) -> int:
        """Steps turned away by the full queue, not built, or not taken by the collector. Complete once the run ended.

        A step counts as lost if its own span is; what was lost below it alone isn't counted. Of spans that the
        process's own provider was given, nothing is known here.
        """
        return self._turned_away + self._broken + self._route.lost + self._left

    @property
    def malformed_links(self) -> int:
        """Requests, counted in each of their steps, whose ``traceparent`` could not be read."""
        return self._route.malformed_links

    def _work(self) -> None:
        route = self._route
        ending = False
        while not ending:
            # Isn't woken by a step: waking a thread costs the serving one more than appending. Before looking at the
            # queue, so that the last look misses nothing.
            ending = self._ending.wait(route.poll_s)
            route.look()
            self._drain(ending=ending)
        route.close()

    def _drain(self, *, ending: bool) -> None:
        queue = self._queue
        while queue and not self._given_up.is_set():
            if not self._route.has_room(queue[0]):
                if not ending:
                    return
                self._given_up.wait(END_POLL_S)
                self._route.look()
                continue
            self._export(queue.popleft())
            if not ending:
                time.sleep(PAUSE_S)

    def _export(self, trace: StepTrace) -> None:
        try:
            trace_id = self._route.take(trace)
        except Exception:
            self._broken += 1
            if self._broken == 1:
                logger.exception(CANT_BUILD, trace.step)
            return
        if trace_id is not None:
            self._ledger.add_exemplar(trace, trace_id)


def make(context: ExportContext) -> OpenTelemetryExporter:
    """Make the exporter. It uses the provider that the process has, or else one of its own; nothing is contacted yet.

    Raises:
        ConfigError: no usable address, a package that is missing, a variable that can't be used, or a process that
            can't be started.
    """
    end_timeout = end_timeout_s()
    return OpenTelemetryExporter(context.ledger, _route(context, end_timeout), end_timeout)


def _route(context: ExportContext, end_timeout: float) -> Route:
    provider = get_tracer_provider()
    if not isinstance(provider, ProxyTracerProvider | NoOpTracerProvider):
        if context.otlp is not None:
            logger.warning("the process has a tracer provider: spans go there, and --otlp %s isn't used", context.otlp)
        process = ProcessDelivery(provider)
        return InProcess(SpanBuilder(process.tracer), process)
    address = find_address(context.otlp, os.environ)
    if not context.virtual_time:
        resource = checked_resource(address, os.environ)
        if resource is not None:
            return SenderProcess(Hello.of(os.getpid(), end_timeout - grace_s(end_timeout), address, resource))
    ids = StepIds()
    own = OwnDelivery(address, os.environ, ids)
    return InProcess(SpanBuilder(own.tracer, ids.begin), own)
