"""Pages of metrics, read back."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.request import Request, urlopen

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families

from sglang_fence_exporters.prometheus import FenceCollector

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from prometheus_client.metrics_core import Metric
    from prometheus_client.samples import Sample

    from sglang_fence.observe.ledger import Ledger

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def text_of(ledger: Ledger, labels: Mapping[str, object] | None = None) -> str:
    """Return what a scraper of plain text gets."""
    registry = CollectorRegistry()
    registry.register(FenceCollector(ledger, labels))
    return generate_latest(registry).decode()


def families_of(text: str) -> list[Metric]:
    """Return the metrics of a page in the text format."""
    return list(text_string_to_metric_families(text))


def openmetrics_families(registry: CollectorRegistry) -> list[Metric]:
    """Return what a scraper of OpenMetrics gets of a registry, through the client's strict parser."""
    page: bytes = openmetrics.generate_latest(registry)  # type: ignore[no-untyped-call] # it is untyped
    return list(openmetrics_parser.text_string_to_metric_families(page.decode()))  # type: ignore[no-untyped-call]


def series_of(families: Iterable[Metric]) -> Series:
    """Return all samples by name and labels, and refuse one that is there twice."""
    samples: list[Sample] = [sample for family in families for sample in family.samples]
    series = {(sample.name, frozenset(sample.labels.items())): float(sample.value) for sample in samples}
    assert len(series) == len(samples)
    return series


def scraped(ledger: Ledger, labels: Mapping[str, object] | None = None) -> Series:
    """Return the samples that a scraper of plain text gets."""
    return series_of(families_of(text_of(ledger, labels)))


def total(series: Series, name: str, **labels: str) -> float:
    """Sum over the series that carry ``labels``."""
    return sum(value for (found, values), value in series.items() if found == name and labels.items() <= values)


def get(port: int | None, accept: str = "text/plain") -> str:
    """Scrape a port."""
    assert port is not None
    request = Request(f"http://127.0.0.1:{port}/metrics", headers={"Accept": accept})
    with urlopen(request, timeout=10) as answer:  # noqa: S310 - it is HTTP
        body: bytes = answer.read()
    return body.decode()
