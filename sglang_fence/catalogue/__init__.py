"""The one source of every metric, span, span attribute and NVTX range that the project emits.

Exporters make what is listed here and nothing else; documentation, dashboards and alerts are checked against it.
Names, labels and attributes are part of the public interface.

A leaf: it knows the contract's words and no exporter, so reading it imports neither Prometheus nor OpenTelemetry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from sglang_fence.catalogue.metrics import DURATION_BUCKETS, METRICS, UNEXPECTED_REASONS, ends_label
from sglang_fence.catalogue.ranges import NVTX_DOMAIN, NVTX_RANGES
from sglang_fence.catalogue.schema import Attribute, Category, Label, Metric, MetricKind, NvtxRange, Span, Track, Unit
from sglang_fence.catalogue.spans import SCOPE, SPANS

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "ATTRIBUTES",
    "DURATION_BUCKETS",
    "METRICS",
    "NVTX_DOMAIN",
    "NVTX_RANGES",
    "SCOPE",
    "SPANS",
    "UNEXPECTED_REASONS",
    "Attribute",
    "Category",
    "Label",
    "Metric",
    "MetricKind",
    "NvtxRange",
    "Span",
    "Track",
    "Unit",
    "attribute",
    "ends_label",
    "metric",
    "nvtx_range",
    "span",
]

ATTRIBUTES: tuple[Attribute, ...] = tuple(dict.fromkeys(attribute for span in SPANS for attribute in span.attributes))
"""Every attribute that a span may carry, each once, in order of first mention."""


class _Named(Protocol):
    @property
    def name(self) -> str: ...


_Row = TypeVar("_Row", bound=_Named)


def _index(rows: Iterable[_Row]) -> dict[str, _Row]:
    return {row.name: row for row in rows}


def _look_up(kind: str, rows: dict[str, _Row], name: str) -> _Row:
    row = rows.get(name)
    if row is None:
        msg = f"no {kind} {name!r} in the catalogue: add it to sglang_fence/catalogue, or use one of {', '.join(rows)}"
        raise LookupError(msg)
    return row


_METRICS = _index(METRICS)
_SPANS = _index(SPANS)
_ATTRIBUTES = _index(ATTRIBUTES)
_NVTX_RANGES = _index(NVTX_RANGES)


def metric(name: str) -> Metric:
    """Return the metric called ``name``, such as ``sglang_fence_steps_total``.

    Raises:
        LookupError: there is none; the message lists those there are. The same holds for the look-ups below.
    """
    return _look_up("metric", _METRICS, name)


def span(name: str) -> Span:
    """Return the span called ``name``, such as ``barrier_wait``."""
    return _look_up("span", _SPANS, name)


def attribute(name: str) -> Attribute:
    """Return the span attribute called ``name``, such as ``sglang_fence.reason``."""
    return _look_up("span attribute", _ATTRIBUTES, name)


def nvtx_range(name: str) -> NvtxRange:
    """Return the NVTX range called ``name``, such as ``barrier.fine``."""
    return _look_up("NVTX range", _NVTX_RANGES, name)
