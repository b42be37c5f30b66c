"""OpenTelemetry: each sampled step as a trace, made after the fact on a thread of its own.

The serving thread only appends to a queue. The queue is bounded: what has no room is turned away and counted, and so is
whatever a collector doesn't take. How spans look is said in docs/tracing.md and, name by name, in the catalogue.
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
from sglang_fence_exporters.otel_delivery import OwnDelivery, ProcessDelivery, end_timeout_s
from sglang_fence_exporters.otel_ids import StepIds
from sglang_fence_exporters.otel_sending import PAUSE_S
from sglang_fence_exporters.otel_spans import SpanBuilder

if TYPE_CHECKING:
    from sglang_fence.observe.exporting import ExportContext
    from sglang_fence.observe.ledger import Ledger
    from sglang_fence.observe.trace import StepTrace
    from sglang_fence_exporters.otel_delivery import Delivery

logger = logging.getLogger(__name__)

QUEUE_STEPS = 1024
"""So many steps may wait for their spans."""

POLL_S = 0.05
"""How often the thread looks for steps. It isn't woken: waking a thread costs the serving one more than appending."""

GRACE_S = 0.5
"""Of the end's time, what is left for giving up in good order."""


class OpenTelemetryExporter(Observer):
    """Turns sampled steps into spans."""

    def __init__(self, ledger: Ledger, builder: SpanBuilder, delivery: Delivery, end_timeout: float) -> None:
        """Start the thread that builds.

        Args:
            ledger: gets each trace's identifier, as an exemplar.
            builder: makes the spans.
            delivery: takes them.
            end_timeout: what :meth:`run_ended` may take, in seconds.
        """
        self._ledger = ledger
        self._builder = builder
        self._delivery = delivery
        self._end_timeout = end_timeout
        self._queue: deque[StepTrace] = deque()
        self._room = QUEUE_STEPS
        self._turned_away = 0
        self._taken = 0
        self._declined = 0
        self._broken = 0
        self._left = 0
        self._ending = threading.Event()
        self._given_up = threading.Event()
        builder.pause = self._pause
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
        grace = min(GRACE_S, self._end_timeout / 2)
        self._ending.set()
        self._thread.join(self._end_timeout - grace)
        if self._thread.is_alive():
            self._given_up.set()
            self._delivery.abort()
            self._thread.join(grace)
        delivery = self._delivery
        accounted = self._declined + self._broken + delivery.failed + delivery.settled
        self._left = max(0, self._taken - accounted)

    @property
    def dropped_steps(self) -> int:
        """Steps turned away by the full queue, not built, or not taken by the collector. Complete once the run ended.

        A step counts as lost if its own span is; what was lost below it alone isn't counted. Of spans that the
        process's own provider was given, nothing is known here.
        """
        return self._turned_away + self._broken + self._delivery.failed + self._left

    @property
    def malformed_links(self) -> int:
        """Requests, counted in each of their steps, whose ``traceparent`` could not be read."""
        return self._builder.malformed_links

    def _work(self) -> None:
        ending = False
        while not ending:
            ending = self._ending.wait(POLL_S)  # before looking at the queue, so that the last look misses nothing
            self._drain(ending=ending)
        self._delivery.close()

    def _drain(self, *, ending: bool) -> None:
        queue = self._queue
        while queue and not self._given_up.is_set():
            if not self._delivery.has_room(1 + len(queue[0].spans)):
                if not ending:
                    return
                self._given_up.wait(POLL_S)
                continue
            self._export(queue.popleft())
            if not ending:
                time.sleep(PAUSE_S)

    def _pause(self) -> None:
        """Let the serving thread have the interpreter lock, while there is one."""
        if not self._ending.is_set():
            time.sleep(PAUSE_S)

    def _export(self, trace: StepTrace) -> None:
        try:
            trace_id = self._builder.build(trace)
        except Exception:
            self._broken += 1
            if self._broken == 1:
                logger.exception("the spans of step %d can't be built; more such steps are only counted", trace.step)
            return
        if trace_id is None:
            self._declined += 1
            return
        self._delivery.hand_over(1 + len(trace.spans))
        self._ledger.add_exemplar(trace, trace_id)


def make(context: ExportContext) -> OpenTelemetryExporter:
    """Make the exporter. It uses the provider that the process has, or else one of its own; nothing is contacted yet.

    Raises:
        ConfigError: no usable address, a package that is missing, or a variable that can't be used.
    """
    end_timeout = end_timeout_s()
    provider = get_tracer_provider()
    if not isinstance(provider, ProxyTracerProvider | NoOpTracerProvider):
        if context.otlp is not None:
            logger.warning("the process has a tracer provider: spans go there, and --otlp %s isn't used", context.otlp)
        process = ProcessDelivery(provider)
        return OpenTelemetryExporter(context.ledger, SpanBuilder(process.tracer), process, end_timeout)
    ids = StepIds() if context.virtual_time else None
    own = OwnDelivery(find_address(context.otlp, os.environ), os.environ, ids)
    builder = SpanBuilder(own.tracer, None if ids is None else ids.begin)
    return OpenTelemetryExporter(context.ledger, builder, own, end_timeout)
