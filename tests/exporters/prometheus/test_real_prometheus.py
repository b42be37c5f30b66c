"""A real Prometheus scrapes the exporter, in both formats, and answers queries over what it got."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest
from prometheus_client import CollectorRegistry, make_wsgi_app

from sglang_fence.contract import FallbackReason, FenceKind
from sglang_fence.observe.exporting import ExportContext
from sglang_fence_exporters.prometheus import FenceCollector, make
from tests.exporters.prometheus.steps import FINE, TRACE_ID, Step, add, full_ledger, trace_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from pathlib import Path
    from wsgiref.types import StartResponse, WSGIEnvironment

    from sglang_fence.observe.ledger import Ledger

PROMETHEUS = shutil.which("prometheus")
DEADLINE_S = 60

pytestmark = pytest.mark.skipif(PROMETHEUS is None, reason="needs prometheus")


class Silent(WSGIRequestHandler):
    """Logs nothing."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        pass


@pytest.fixture
def ledger() -> Ledger:
    return full_ledger()


@pytest.fixture
def plain_port(ledger: Ledger) -> Generator[int]:
    """A server that speaks plain text only, whatever it is asked for."""
    registry = CollectorRegistry()
    registry.register(FenceCollector(ledger))
    app = make_wsgi_app(registry)

    def plain(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        environ.pop("HTTP_ACCEPT", None)
        answer: Iterable[bytes] = app(environ, start_response)
        return answer

    with make_server("127.0.0.1", 0, plain, handler_class=Silent) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.fixture
def api(ledger: Ledger, plain_port: int, tmp_path: Path) -> Generator[str]:
    """A Prometheus that scrapes both once a second; its API's address."""
    exporter = make(ExportContext(ledger=ledger, metrics_port=0))
    jobs = {"openmetrics": exporter.port, "plain": plain_port}
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [
            {"job_name": name, "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]} for name, port in jobs.items()
        ],
    }
    path = tmp_path / "prometheus.yml"
    path.write_text(json.dumps(config))  # which is YAML
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    log = (tmp_path / "log").open("wb")
    process = subprocess.Popen(
        [
            str(PROMETHEUS),
            f"--config.file={path}",
            f"--storage.tsdb.path={tmp_path / 'data'}",
            f"--web.listen-address={address}",
            "--enable-feature=exemplar-storage",
        ],
        stdout=log,
        stderr=log,
    )
    yield f"http://{address}/api/v1/"
    process.terminate()
    process.wait(30)
    exporter.close()
    log.close()


def ask(api: str, what: str, **parameters: object) -> Any:  # noqa: ANN401 - JSON
    """Return an answer's data; None while nobody answers yet."""
    try:
        with urlopen(f"{api}{what}?{urlencode(parameters)}", timeout=10) as answer:  # noqa: S310 - it is HTTP
            return json.load(answer)["data"]
    except URLError:
        return None


def values(api: str, query: str) -> dict[str, float]:
    """Return an instant query's answer by job."""
    data = ask(api, "query", query=query)
    return {row["metric"].get("job", ""): float(row["value"][1]) for row in data["result"]} if data else {}


def eventually(look: Callable[[], object], expected: object) -> None:
    deadline = time.monotonic() + DEADLINE_S
    seen = look()
    while seen != expected and time.monotonic() < deadline:
        threading.Event().wait(0.1)
        seen = look()
    assert seen == expected


def test_it_scrapes_both_formats_sees_increases_from_zero_and_keeps_exemplars(api: str, ledger: Ledger) -> None:
    both = ("openmetrics", "plain")
    started_s = time.time() - 60
    eventually(lambda: values(api, "sum by (job) (sglang_fence_steps_total)"), dict.fromkeys(both, 5.0))
    stale = 'sum by (job) (sglang_fence_coarse_fallbacks_total{reason="stale"})'
    assert values(api, stale) == dict.fromkeys(both, 0.0)

    # The first of its kind: seen by increase(), since the series was there before it.
    add(ledger, [Step(fence=FenceKind.COARSE, reason=FallbackReason.STALE, timed=False)])
    seen = f"{stale.replace('(sglang', '(increase(sglang').replace('})', '}[5m]))')} > bool 0"
    eventually(lambda: values(api, seen), dict.fromkeys(both, 1.0))
    shares = "sum by (job) (sglang_fence_coarse_fallbacks_total) - sum by (job) "
    assert values(api, shares + '(sglang_fence_steps_total{fence="coarse"})') == dict.fromkeys(both, 0.0)
    median = "histogram_quantile(0.5, sum by (job, le) (sglang_fence_forward_seconds_bucket))"
    assert all(0.000512 < value <= 0.001024 for value in values(api, median).values())

    # Exemplars are for those who speak OpenMetrics.
    ledger.add_exemplar(trace_of(FINE, time.time_ns()), TRACE_ID)

    def exemplars() -> object:
        found = ask(
            api,
            "query_exemplars",
            query="sglang_fence_slack_seconds_bucket",
            start=started_s,
            end=time.time() + 60,
        )
        return {
            (row["seriesLabels"]["job"], one["labels"]["trace_id"], one["value"])
            for row in found or ()
            for one in row["exemplars"]
        }

    eventually(exemplars, {("openmetrics", TRACE_ID, "0.0009")})

    targets = ask(api, "targets", state="active")["activeTargets"]
    assert {(target["labels"]["job"], target["health"], target["lastError"]) for target in targets} == {
        ("openmetrics", "up", ""),
        ("plain", "up", ""),
    }
    described = ask(api, "metadata", metric="sglang_fence_steps_total")
    assert {row["type"] for row in described.get("sglang_fence_steps_total", [])} == {"counter"}
