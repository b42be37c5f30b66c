"""Metrics of ``prometheus_client`` with their children cached, brought to a reading's numbers by differences.

The one place that leans on what ``prometheus_client`` doesn't promise: it has no public way of adding several
observations to a histogram's bucket. A child keeps its values in ``_buckets`` (one a bucket, not cumulated) and in
``_sum``, each with an ``inc``; so it has been from version 0.20 to 0.26. Where a child lacks them, its histogram is
left out, with a log line, and the other metrics go on.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol, TypeVar

from sglang_fence.catalogue import DURATION_BUCKETS, METRICS, MetricKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics import Counter, Gauge, Histogram, MetricWrapperBase

    from sglang_fence.catalogue import Metric
    from sglang_fence_exporters.prometheus_reading import Reading, Values

_Kind = TypeVar("_Kind", bound="MetricWrapperBase")

logger = logging.getLogger(__name__)

_US = 1_000_000

_PIECE = 16
"""Numbers that are worked off in one piece: some 20 µs, more where children are new."""


class Series(Protocol):
    """All series of one metric."""

    def bring_to(self, reading: Reading) -> Iterator[None]:
        """Write what differs from the reading before. Yields after each piece of work; to be exhausted."""


class CounterSeries:
    """Counters: differences are added."""

    def __init__(self, counter: Counter, constant: tuple[str, ...]) -> None:
        self._counter = counter
        self._constant = constant
        self._children: dict[Values, Counter] = {}
        self._given: dict[Values, float] = {}

    def bring_to(self, reading: Reading) -> Iterator[None]:
        """See :class:`Series`."""
        for index, (values, number) in enumerate(reading.numbers.items(), 1):
            child = self._children.get(values)
            if child is None:
                # Made here also for a 0: it is then there from the start.
                child = self._children[values] = _child(self._counter, (*self._constant, *values))
            given = self._given.get(values, 0)
            if number > given:
                child.inc(number - given)
                self._given[values] = number
            if index % _PIECE == 0:
                yield
        yield


class GaugeSeries:
    """Gauges: what changed is set. One that is no longer told is set to 0, since children can't be removed."""

    def __init__(self, gauge: Gauge, constant: tuple[str, ...]) -> None:
        self._gauge = gauge
        self._constant = constant
        self._children: dict[Values, Gauge] = {}
        self._given: dict[Values, float] = {}

    def bring_to(self, reading: Reading) -> Iterator[None]:
        """See :class:`Series`."""
        gone = dict.fromkeys(self._given.keys() - reading.numbers.keys(), 0.0)
        for index, (values, number) in enumerate({**reading.numbers, **gone}.items(), 1):
            if self._given.get(values) != number:
                child = self._children.get(values)
                if child is None:
                    child = self._children[values] = _child(self._gauge, (*self._constant, *values))
                child.set(number)
                self._given[values] = number
            if index % _PIECE == 0:
                yield
        yield


class HistogramSeries:
    """Histograms: differences are added bucket by bucket."""

    def __init__(self, name: str, histogram: Histogram, constant: tuple[str, ...]) -> None:
        self._name = name
        self._histogram = histogram
        self._constant = constant
        self._children: dict[Values, Histogram] = {}
        self._counts: dict[Values, list[int]] = {}
        self._sums_us: dict[Values, float] = {}
        self._usable = True

    def bring_to(self, reading: Reading) -> Iterator[None]:
        """See :class:`Series`."""
        for values, target in reading.histograms.items():
            child = self._children.get(values)
            if child is None:
                child = _child(self._histogram, (*self._constant, *values))
                self._usable = self._usable and self._has_buckets(child)
                self._children[values] = child
            if not self._usable:
                return
            before = self._counts.get(values) or [0] * len(target.counts)
            for bucket, count, given in zip(child._buckets, target.counts, before, strict=True):  # noqa: SLF001 - see the module's docstring
                if count > given:
                    bucket.inc(count - given)
            sum_us = self._sums_us.get(values, 0.0)
            if target.sum_us > sum_us:
                child._sum.inc((target.sum_us - sum_us) / _US)  # noqa: SLF001 - likewise
            self._counts[values] = target.counts
            self._sums_us[values] = target.sum_us
            yield
        yield

    def _has_buckets(self, child: Histogram) -> bool:
        buckets = getattr(child, "_buckets", None)
        if isinstance(buckets, list) and len(buckets) == len(DURATION_BUCKETS) + 1 and hasattr(child, "_sum"):
            return True
        logger.error(
            "%s is left out: this prometheus_client keeps buckets elsewhere (0.20 to 0.26 are known)", self._name
        )
        return False


def make_series(constant: Mapping[str, str], registry: CollectorRegistry | None) -> dict[str, Series]:
    """Make the catalogue's metrics, by name, with ``constant`` labels in front of their own."""
    from prometheus_client import REGISTRY, Counter, Gauge, Histogram  # noqa: PLC0415 - decides on the mode when imported

    where = REGISTRY if registry is None else registry
    names, values = tuple(constant), tuple(constant.values())

    def make(metric: Metric) -> Series:
        labels = (*names, *metric.label_names)
        match metric.kind:
            case MetricKind.COUNTER:
                return CounterSeries(Counter(metric.name, metric.help, labels, registry=where), values)
            case MetricKind.GAUGE:
                newest = Gauge(metric.name, metric.help, labels, registry=where, multiprocess_mode="mostrecent")
                return GaugeSeries(newest, values)
            case MetricKind.HISTOGRAM:
                buckets = DURATION_BUCKETS
                histogram = Histogram(metric.name, metric.help, labels, registry=where, buckets=buckets)
                return HistogramSeries(metric.name, histogram, values)

    return {metric.name: make(metric) for metric in METRICS}


def _child(metric: _Kind, values: Values) -> _Kind:
    return metric.labels(*values) if values else metric
