"""Builds the spans of a step, after the fact: explicit times, explicit parents, nothing of the thread's own context."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from opentelemetry.context import Context
from opentelemetry.trace import Link, format_trace_id, get_current_span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from sglang_fence.catalogue.spans import LINK
from sglang_fence_exporters.otel_attributes import STEP_SPAN, span_attributes, step_attributes

if TYPE_CHECKING:
    from collections.abc import Callable

    from opentelemetry.trace import SpanContext, Tracer
    from opentelemetry.util.types import Attributes

    from sglang_fence.observe.trace import SpanTimes, StepTrace

RECENT_STEPS = 1024
"""So many exported steps can be linked to: a fence is waited for one or two steps later."""

KNOWN_REQUESTS = 4096
"""So many ``traceparent`` are kept read: a request comes with each of its steps."""

SPANS_A_PIECE = 4
"""So many spans are built, in about 100 µs, before the interpreter lock is given up: a whole step would take as long as
a short decode."""

CANT_BUILD = "the spans of step %d can't be built; more such steps are only counted"
"""What is logged of the first."""

_PROPAGATOR: Final = TraceContextTextMapPropagator()
_FENCE = {LINK.name: "fence"}
_REQUEST = {LINK.name: "request"}


def parse_traceparent(text: str) -> SpanContext | None:
    """Return what a W3C ``traceparent`` points at, or None where it is malformed."""
    context = get_current_span(_PROPAGATOR.extract({"traceparent": text}, context=Context())).get_span_context()
    return context if context.is_valid else None


class SpanBuilder:
    """Makes spans of one step after the other through ``tracer``. For one thread."""

    def __init__(self, tracer: Tracer, begin_step: Callable[[int], None] | None = None) -> None:
        """Build through ``tracer``.

        Args:
            tracer: of the process's provider, or of our own.
            begin_step: called with each step's number before its first span; for identifiers made from it.
        """
        self._tracer = tracer
        self._begin_step = begin_step
        self.pause: Callable[[], None] = _go_on
        """Called between two spans: building one takes about 25 µs, in which the serving thread may wait for us."""
        self._recent: dict[int, SpanContext] = {}
        self._parse = lru_cache(maxsize=KNOWN_REQUESTS)(parse_traceparent)
        self.malformed_links = 0
        """Requests whose ``traceparent`` could not be read, counted in each of their steps."""

    def build(self, trace: StepTrace) -> str | None:
        """Build the step's span and those below it, and end them.

        Returns:
            The trace's identifier, 32 hexadecimal digits; None where the provider's sampler, or its being switched off,
            said no: then there are no spans.

        Raises:
            KeyError: a span isn't in the catalogue. Nothing was built, as with every error below.
            IndexError: a span names a phase that the step hasn't got.
        """
        # Everything that may raise comes before the first span begins, so that none is left without an end.
        own = step_attributes(trace)
        below: list[tuple[SpanTimes, Attributes]] = []
        for span in trace.spans:
            below.append((span, span_attributes(trace, span)))
            if len(below) % SPANS_A_PIECE == 0:
                self.pause()
        links = self._links(trace)
        if self._begin_step is not None:
            self._begin_step(trace.step)
        tracer = self._tracer
        step = tracer.start_span(STEP_SPAN, Context(), attributes=own, links=links, start_time=trace.start_ns)
        if not step.is_recording():
            return None
        parent = set_span_in_context(step, Context())
        for place, (span, attributes) in enumerate(below):
            if place % SPANS_A_PIECE == 0:
                self.pause()
            child = tracer.start_span(span.name, parent, attributes=attributes, start_time=span.start_ns)
            child.end(span.end_ns)
        self.pause()
        # Last, as a step ends last: whoever got the step's span has been sent all that is below it.
        step.end(trace.end_ns)
        context = step.get_span_context()
        self._remember(trace.step, context)
        return format_trace_id(context.trace_id)

    def _links(self, trace: StepTrace) -> list[Link]:
        links: list[Link] = []
        for text in trace.links:
            context = self._parse(text)
            if context is None:
                self.malformed_links += 1
            else:
                links.append(Link(context, _REQUEST))
        fenced = None if trace.waited_for is None else self._recent.get(trace.waited_for)
        if fenced is not None:
            # After the requests: of more than 128 links the SDK keeps the last, and this one is missed the most.
            links.append(Link(fenced, _FENCE))
        return links

    def _remember(self, step: int, context: SpanContext) -> None:
        recent = self._recent
        recent[step] = context
        if len(recent) > RECENT_STEPS:
            del recent[next(iter(recent))]


def _go_on() -> None:
    """No pause."""
