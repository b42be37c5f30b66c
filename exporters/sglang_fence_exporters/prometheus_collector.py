"""``FenceCollector``: the catalogue's metrics at the moment of a scrape. Between scrapes it does nothing at all.

Exemplars (the trace of a sampled step, by bucket) come out where the scraper asks for OpenMetrics; the plain text
format has no place for them.
"""

from __future__ import annotations

import time
from itertools import accumulate
from typing import TYPE_CHECKING

from sglang_fence.catalogue import DURATION_BUCKETS, METRICS, Metric, MetricKind, Unit
from sglang_fence_exporters.prometheus_labels import constant_labels
from sglang_fence_exporters.prometheus_reading import Values, read

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from prometheus_client.metrics_core import Metric as Family
    from prometheus_client.samples import Exemplar as ClientExemplar

    from sglang_fence.observe.ledger import Exemplar, Ledger
    from sglang_fence_exporters.prometheus_reading import Histogram, Reading

# prometheus_client is imported inside functions only: on import it decides, once for the process, whether its values
# live in memory or in files, and a server sets the variable that says so after our modules are loaded.

_US = 1_000_000
_NS = 1_000_000_000


class FenceCollector:
    """A collector for a registry of ``prometheus_client``.

    Args:
        ledger: what is exported.
        labels: constant labels that each series carries beside the catalogue's.
        pause_s: seconds to sleep after each metric, so that a serving thread that waits for the interpreter gets it.
            For a scrape in a thread of its own; 0 where the scrape itself must not block.

    Raises:
        ConfigError: a label can't be used.
    """

    def __init__(self, ledger: Ledger, labels: Mapping[str, object] | None = None, *, pause_s: float = 0.0) -> None:
        self._ledger = ledger
        self._labels = constant_labels(labels)
        self._pause_s = pause_s
        self._cached: dict[tuple[str, Values], dict[str, str]] = {}
        self._buckets: dict[tuple[str, Values], list[dict[str, str]]] = {}

    def describe(self) -> Iterable[Family]:
        """Name the metrics without reading them: what a registry asks for at registration."""
        return [_family(metric) for metric in METRICS]

    def collect(self) -> Iterator[Family]:
        """Yield each metric that has series."""
        for reading in read(self._ledger):
            family = _family(reading.metric)
            for values, number in reading.numbers.items():
                family.add_sample(reading.metric.name, self._labels_of(reading.metric, values), number)
            for values, histogram in reading.histograms.items():
                self._add_histogram(family, reading, values, histogram)
            if family.samples:
                yield family
            if self._pause_s:
                time.sleep(self._pause_s)

    def _labels_of(self, metric: Metric, values: Values) -> dict[str, str]:
        labels = self._cached.get((metric.name, values))
        if labels is None:
            labels = self._labels | dict(zip(metric.label_names, values, strict=True))
            self._cached[metric.name, values] = labels
        return labels

    def _buckets_of(self, metric: Metric, values: Values) -> list[dict[str, str]]:
        buckets = self._buckets.get((metric.name, values))
        if buckets is None:
            from prometheus_client.utils import floatToGoString  # noqa: PLC0415 - see above

            labels = self._labels_of(metric, values)
            bounds = (*DURATION_BUCKETS, float("inf"))
            # As the client's own histograms write it, so that series are the same in both modes.
            texts = [str(floatToGoString(bound)) for bound in bounds]  # type: ignore[no-untyped-call] # it is untyped
            buckets = [labels | {"le": text} for text in texts]
            self._buckets[metric.name, values] = buckets
        return buckets

    def _add_histogram(self, family: Family, reading: Reading, values: Values, histogram: Histogram) -> None:
        name = reading.metric.name
        cumulated = list(accumulate(histogram.counts))
        exemplars = {bucket: _exemplar(exemplar) for bucket, exemplar in histogram.exemplars.items()}
        for bucket, labels in enumerate(self._buckets_of(reading.metric, values)):
            family.add_sample(f"{name}_bucket", labels, cumulated[bucket], exemplar=exemplars.get(bucket))
        labels = self._labels_of(reading.metric, values)
        family.add_sample(f"{name}_count", labels, cumulated[-1])
        family.add_sample(f"{name}_sum", labels, histogram.sum_us / _US)


def _family(metric: Metric) -> Family:
    from prometheus_client.metrics_core import Metric as Family  # noqa: PLC0415 - see above

    # In OpenMetrics a counter's family has no suffix, its samples have.
    name = metric.name.removesuffix("_total") if metric.kind is MetricKind.COUNTER else metric.name
    return Family(name, metric.help, metric.kind.value, "seconds" if metric.unit is Unit.SECONDS else "")


def _exemplar(exemplar: Exemplar) -> ClientExemplar:
    from prometheus_client.samples import Exemplar as ClientExemplar  # noqa: PLC0415 - see above
    from prometheus_client.samples import Timestamp  # noqa: PLC0415 - see above

    seconds, nanoseconds = divmod(exemplar.at_ns, _NS)
    return ClientExemplar({"trace_id": exemplar.trace_id}, exemplar.us / _US, Timestamp(seconds, nanoseconds))
