"""The exporter's own HTTP port: bound at once, both formats, refused in one line, freed at the end."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING
from urllib.error import HTTPError, URLError

import pytest

from sglang_fence.errors import ConfigError
from sglang_fence.observe.exporting import ExportContext, make_exporter
from sglang_fence.observe.observer import Observers
from sglang_fence_exporters.prometheus import PrometheusExporter, make
from tests.exporters.prometheus.scraped import OPENMETRICS, families_of, get, series_of, text_of, total
from tests.exporters.prometheus.steps import FINE, add, full_ledger

if TYPE_CHECKING:
    from collections.abc import Generator

    from sglang_fence.observe.ledger import Ledger

PROMTOOL = shutil.which("promtool")


@pytest.fixture
def ledger() -> Ledger:
    return full_ledger()


@pytest.fixture
def exporter(ledger: Ledger) -> Generator[PrometheusExporter]:
    made = make_exporter("prometheus", ExportContext(ledger=ledger, metrics_port=0))
    assert isinstance(made, PrometheusExporter)
    yield made
    made.close()


def test_a_scrape_is_what_the_ledger_says_at_that_moment(ledger: Ledger, exporter: PrometheusExporter) -> None:
    assert get(exporter.port) == text_of(ledger)
    before = total(series_of(families_of(get(exporter.port))), "sglang_fence_steps_total")
    add(ledger, [FINE] * 7)
    assert total(series_of(families_of(get(exporter.port))), "sglang_fence_steps_total") == before + 7


def test_constant_labels_of_the_context_are_on_every_series(ledger: Ledger) -> None:
    labels = {"model_name": "a model", "tp_rank": "1"}
    exporter = make(ExportContext(ledger=ledger, labels=labels, metrics_port=0))
    try:
        series = series_of(families_of(get(exporter.port)))
    finally:
        exporter.close()
    assert series
    assert all(labels.items() <= dict(own).items() for _, own in series)


def test_a_constant_label_that_a_metric_has_already_is_refused_in_one_line(ledger: Ledger) -> None:
    with pytest.raises(ConfigError, match=r"^the label 'mode' is one of the metrics' own"):
        make(ExportContext(ledger=ledger, labels={"mode": "x"}, metrics_port=0))


def test_the_scraper_chooses_the_format(exporter: PrometheusExporter) -> None:
    assert get(exporter.port, OPENMETRICS).endswith("# EOF\n")
    assert "# EOF" not in get(exporter.port)


@pytest.mark.skipif(PROMTOOL is None, reason="needs promtool, of Prometheus")
def test_promtool_has_nothing_to_say(exporter: PrometheusExporter) -> None:
    checked = subprocess.run(
        [str(PROMTOOL), "check", "metrics"], input=get(exporter.port), capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_it_hears_of_no_step_so_that_serving_pays_nothing_for_it(exporter: PrometheusExporter) -> None:
    observers = Observers([exporter])
    assert not observers.step_finished
    assert not observers.step_started
    assert not observers.step_traced
    assert len(observers.run_ended) == 1


def test_it_goes_on_after_the_run_and_frees_its_port_when_closed(ledger: Ledger) -> None:
    before = set(threading.enumerate())
    exporter = make(ExportContext(ledger=ledger, metrics_port=0))
    port = exporter.port
    own = set(threading.enumerate()) - before
    exporter.run_ended()
    assert get(port)
    server = exporter._server  # held, so that no collection of garbage does the work
    exporter.close()
    exporter.close()
    assert own
    assert not any(thread.is_alive() for thread in own)  # others' threads come and go as they like
    assert exporter.port is None
    with pytest.raises(URLError):
        get(port)
    again = make(ExportContext(ledger=ledger, metrics_port=port))
    assert again.port == port
    again.close()
    assert server is not None


def test_it_serves_the_loopback_alone_unless_told_otherwise(exporter: PrometheusExporter) -> None:
    assert exporter.port is not None
    with socket.socket() as other:
        # Somebody else may have the port on another address of this machine: we don't hold it.
        other.bind(("127.0.0.2", exporter.port))


def test_without_a_port_nothing_is_served(ledger: Ledger) -> None:
    exporter = make(ExportContext(ledger=ledger))
    assert exporter.port is None
    exporter.run_ended()
    exporter.close()


def test_a_taken_port_is_said_in_one_line(ledger: Ledger) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"^port {port} is taken on 127\.0\.0\.1: name another one, or 0"):
            make(ExportContext(ledger=ledger, metrics_port=port))


@pytest.mark.parametrize(
    ("host", "port", "words"),
    [
        ("127.0.0.1", 70_000, "there is no port 70000"),
        ("127.0.0.1", -1, "there is no port -1"),
        ("192.0.2.1", 0, "metrics can't be served on 192.0.2.1 port 0"),
        ("no.such.host.invalid", 0, "metrics can't be served on no.such.host.invalid port 0"),
    ],
)
def test_an_address_that_cannot_be_bound_is_named(host: str, port: int, words: str, ledger: Ledger) -> None:
    with pytest.raises(ConfigError, match=rf"^{words}"):
        make(ExportContext(ledger=ledger, metrics_host=host, metrics_port=port))


def test_a_scrape_that_fails_is_an_error_to_the_scraper_alone(ledger: Ledger, exporter: PrometheusExporter) -> None:
    exporters = ledger.health.exporters
    ledger.health.exporters = None  # type: ignore[assignment] # what reads it fails
    with pytest.raises(HTTPError, match="500"):
        get(exporter.port)
    add(ledger, [FINE])
    ledger.health.exporters = exporters
    assert get(exporter.port) == text_of(ledger)


def test_scrapes_while_steps_are_added_never_disagree_with_themselves(
    ledger: Ledger, exporter: PrometheusExporter
) -> None:
    ended = threading.Event()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads change every few operations, so that what isn't safe shows

    def serve() -> None:
        kinds = 0
        while not ended.is_set():
            kinds += 1
            ledger.health.errors[f"hook{kinds % 1_000}"] += 1
            add(ledger, [FINE])

    server = threading.Thread(target=serve)
    server.start()
    try:
        seen = [series_of(families_of(get(exporter.port))) for _ in range(8)]
    finally:
        ended.set()
        server.join()
        sys.setswitchinterval(interval)
    steps = [total(series, "sglang_fence_steps_total") for series in seen]
    assert steps == sorted(steps)
    assert steps[0] < steps[-1]
    for series in seen:
        last = total(series, "sglang_fence_slack_seconds_bucket", le="+Inf")
        assert last == total(series, "sglang_fence_slack_seconds_count")
