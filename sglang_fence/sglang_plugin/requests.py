"""The requests of a batch, as far as SGLang traces them: a step's spans are linked to theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry import trace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def traceparents(requests: Iterable[Any]) -> Iterator[str]:
    """Yield the W3C ``traceparent`` of the root span of each request that is traced."""
    for request in requests:
        context = getattr(getattr(request, "time_stats", None), "trace_ctx", None)
        if context is None or not getattr(context, "tracing_enable", False):
            continue
        carrier = getattr(context, "_root_span_carrier", None)  # the asynchronous kind keeps it as it travels
        if carrier:
            yield str(carrier.get("traceparent", ""))
            continue
        root = getattr(context, "root_span_context", None)
        span = trace.get_current_span(root).get_span_context() if root is not None else None
        if span is not None and span.is_valid:
            yield f"00-{span.trace_id:032x}-{span.span_id:016x}-{int(span.trace_flags):02x}"
