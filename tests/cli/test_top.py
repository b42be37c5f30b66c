"""``sglang-fence top``: live servers, one that is down, and the numbers between two looks."""

from __future__ import annotations

import io
import json
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import inf
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, generate_latest
from rich.console import Console

from sglang_fence.catalogue import DURATION_BUCKETS
from sglang_fence.cli import main
from sglang_fence.cli.top import page as page_module
from sglang_fence.cli.top.page import UnreachableError, fetch, metrics_url, parse
from sglang_fence.cli.top.standing import Standing, quantile, standing
from sglang_fence.cli.top.table import table
from sglang_fence.contract import FallbackReason, FenceKind
from sglang_fence.observe.exporting import ExportContext, make_exporter
from sglang_fence_exporters.prometheus import PrometheusExporter
from tests.exporters.prometheus.scraped import text_of
from tests.exporters.prometheus.steps import COARSE, FINE, Step, add, declared_ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from sglang_fence.observe.ledger import Ledger


@pytest.fixture
def serve() -> Generator[Callable[[Ledger], str]]:
    """Serve a ledger's metrics with the real exporter; returns the URL."""
    exporters: list[PrometheusExporter] = []

    def start(ledger: Ledger) -> str:
        exporter = make_exporter("prometheus", ExportContext(ledger=ledger, metrics_port=0))
        assert isinstance(exporter, PrometheusExporter)
        exporters.append(exporter)
        return f"http://127.0.0.1:{exporter.port}/metrics"

    yield start
    for exporter in exporters:
        exporter.close()


@pytest.fixture
def dead() -> Generator[str]:
    """A port that nobody listens at, and nobody else gets."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}/metrics"


@contextmanager
def answering(body: bytes, status: int = 200) -> Generator[str]:
    """Serve the same bytes at any path."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/metrics"
        server.shutdown()
        thread.join()


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["sglang-fence", "top", *arguments])
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


STALE = Step(fence=FenceKind.COARSE, reason=FallbackReason.STALE, us={"wait_us": 8.0, "lost_us": 500_000.0})


def test_two_live_servers_and_a_dead_one(
    serve: Callable[[Ledger], str],
    dead: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    one, other = declared_ledger(), declared_ledger()
    add(one, [FINE, FINE, FINE, COARSE])
    other.facts.barrier_enabled = False
    urls = [serve(one), dead, serve(other)]
    assert run(monkeypatch, *urls, "--once", "--json") == 0
    first, down, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert [first["url"], down["url"], last["url"]] == urls
    assert (down["error"], down["steps"]) == ("connection refused", 0)
    assert (first["error"], first["steps"], first["fine_share"], first["barrier"]) == (None, 4, 0.75, "on")
    assert first["coarse"] == {"backend_unknown": 1}
    assert (first["over_s"], first["steps_per_s"], first["lost_s_per_s"]) == (None, None, None)
    assert first["lost_s"] == pytest.approx(25e-6)
    assert 512e-6 < first["slack_p50_s"] < 1024e-6
    assert 16e-6 < first["wait_p99_s"] <= 32e-6
    assert (last["steps"], last["fine_share"], last["slack_p50_s"], last["barrier"]) == (0, None, None, "off")

    assert run(monkeypatch, *urls, "--once") == 0
    text = capsys.readouterr().out
    assert "down: connection refused" in text
    assert "backend_unknown (1)" in text
    assert "75.0%" in text


def test_rates_and_percentiles_are_those_between_two_looks(serve: Callable[[Ledger], str]) -> None:
    ledger = declared_ledger()
    add(ledger, [FINE] * 1_000)
    url = serve(ledger)
    before = fetch(url)
    add(ledger, [Step(us={"slack_us": 3.0, "wait_us": 1.0})] * 6 + [STALE] * 3 + [COARSE])
    now = fetch(url)
    now.at_s = before.at_s + 4.0
    row = standing(url, now, before)
    assert (row.over_s, row.steps, row.steps_per_s, row.fine_share) == (4.0, 10, 2.5, 0.6)
    assert row.coarse == {"stale": 3, "backend_unknown": 1}
    assert list(row.coarse) == ["stale", "backend_unknown"]
    assert row.lost_s_per_s == pytest.approx((3 * 0.5 + 25e-6) / 4)
    # All six slacks are in the bucket from 2 to 4 µs, spread over it evenly.
    assert row.slack_p50_s == pytest.approx(3e-6)
    assert row.slack_p99_s == pytest.approx(2e-6 + 0.99 * 2e-6)
    # Of ten waits six are up to 1 µs, three up to 8, one up to 32.
    assert row.wait_p50_s == pytest.approx(5 / 6 * 1e-6)
    assert row.wait_p99_s == pytest.approx(16e-6 + 0.9 * 16e-6)


def test_a_server_that_restarted_is_shown_by_its_totals(serve: Callable[[Ledger], str]) -> None:
    old, new = declared_ledger(), declared_ledger()
    add(old, [FINE] * 10)
    add(new, [FINE] * 2)
    row = standing("u", fetch(serve(new)), fetch(serve(old)))
    assert (row.steps, row.over_s, row.steps_per_s) == (2, None, None)


def test_it_goes_on_until_ctrl_c_and_then_ends_with_0(serve: Callable[[Ledger], str], dead: str) -> None:
    ledger = declared_ledger()
    add(ledger, [FINE])
    command = [sys.executable, "-m", "sglang_fence", "top", serve(ledger), dead, "--interval", "0.1"]
    with subprocess.Popen(
        [*command, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:  # fmt: skip
        assert process.stdout is not None
        rows = [json.loads(process.stdout.readline()) for _ in range(4)]
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    assert [row["error"] for row in rows] == [None, "connection refused"] * 2
    assert [row["steps"] for row in rows[::2]] == [1, 0]
    assert rows[0]["over_s"] is None
    assert rows[2]["over_s"] >= 0.1


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://h:9400", "http://h:9400/metrics"),
        ("http://h:9400/", "http://h:9400/metrics"),
        ("https://h/x/metrics?a=b", "https://h/x/metrics?a=b"),
        ("http://[::1]:9400", "http://[::1]:9400/metrics"),
    ],
)
def test_a_url_without_a_path_means_metrics(text: str, url: str) -> None:
    assert metrics_url(text) == url


@pytest.mark.parametrize(
    "text",
    ["localhost:9400", "file:///etc/passwd", "http://", "http://h:x", "http://[h", "", "a b", "http://\u2603.example"],
)
def test_a_bad_url_is_named_with_the_mend(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--once", "--", text) == 2
    said = capsys.readouterr().err.strip()
    assert said == f"sglang-fence: {text!r} is no URL of metrics: write it like http://127.0.0.1:9400/metrics"


def test_an_interval_that_is_no_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, "http://h", "--interval", "nan") == 2
    assert run(monkeypatch, "http://h", "--interval", "0") == 2


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"", 404, "answers 404 Not Found"),
        (b"<html>hello</html>", 200, "has no sglang_fence_* metrics"),
        (b"# TYPE up gauge\nup 1\n", 200, "has no sglang_fence_* metrics"),
        (b'sglang_fence_steps_total{mode="decode} 1\n', 200, "sends what isn't Prometheus's text format"),
        (b"sglang_fence_steps_total one\n", 200, "sends what isn't Prometheus's text format"),
        (b'sglang_fence_slack_seconds_bucket{le="x"} 1\n', 200, "sends what isn't Prometheus's text format"),
        (
            b"# TYPE sglang_fence_slack_seconds histogram\nsglang_fence_slack_seconds_bucket 1\n",
            200,
            "sends what isn't",
        ),
        (b"sglang_fence_steps_total{} NaN\nsglang_fence_steps_total{\n", 200, "sends what isn't"),
        (b"\xff\xfe\x00", 200, "has no sglang_fence_* metrics"),
    ],
)
def test_what_comes_from_something_else_is_a_row_that_says_so(body: bytes, status: int, words: str) -> None:
    with answering(body, status) as url, pytest.raises(UnreachableError, match=words.replace("*", r"\*")):
        fetch(url)


def test_a_page_without_end_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_module, "LARGEST", 1 << 20)
    with answering(b"#" * (2 << 20)) as url, pytest.raises(UnreachableError, match="sends more than 1 MiB"):
        fetch(url)


def test_a_server_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_module, "TIMEOUT_S", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with pytest.raises(UnreachableError, match=r"no answer within 0\.2 s"):
            fetch(f"http://127.0.0.1:{silent.getsockname()[1]}/metrics")


def test_sglangs_own_series_and_labels_are_tolerated_and_ranks_are_summed() -> None:
    pages: list[str] = []
    for rank, count in enumerate((3, 4)):
        ledger = declared_ledger()
        ledger.facts.barrier_enabled = rank == 0
        add(ledger, [FINE] * count)
        pages.append(text_of(ledger, {"model_name": 'a "b"', "tp_rank": rank}))
    foreign = CollectorRegistry()
    Counter("sglang:num_requests", "Requests.", ["model_name"], registry=foreign).labels("m").inc()
    page = parse(generate_latest(foreign).decode() + "".join(pages), 0.0)
    row = standing("u", page)
    assert (row.steps, row.fine_share, row.barrier) == (7, 1.0, "mixed")
    assert row.slack_p99_s is not None


def test_the_table_says_everything_of_a_row_and_takes_no_markup_from_outside() -> None:
    reasons = {f"reason{number}": 8.0 - number for number in range(5)}
    rows = [
        Standing(url="http://a:1/metrics", over_s=2.0, steps=8, steps_per_s=4.0, coarse=reasons, barrier="on"),
        Standing(
            url="http://b:2/metrics",
            slack_p50_s=2e-6,
            slack_p99_s=0.0123,
            wait_p50_s=2.5,
            wait_p99_s=None,
            lost_s_per_s=0.25,
            fine_share=0.999,
        ),
        Standing(url="http://[::1]:3/metrics", error="[bold]odd[/bold]"),
    ]
    console = Console(file=io.StringIO(), width=200)
    console.print(table(rows))
    text = console.file.getvalue()  # type: ignore[attr-defined] # it is the StringIO of above
    for words in (
        "reason0 4.0/s, reason1 3.5/s, reason2 3.0/s, 2 more",
        "2.0 µs / 12.30 ms",
        "2.50 s / –",
        "0.2500",
        "99.9%",
        "[::1]:3",
        "down: [bold]odd[/bold]",
    ):
        assert words in text


@given(st.lists(st.integers(0, 2**26), min_size=1, max_size=50), st.floats(0.01, 1))
def test_a_quantile_lies_in_the_bucket_of_the_value_that_has_its_rank(values: list[int], share: float) -> None:
    bounds = [*(bound * 1e6 for bound in DURATION_BUCKETS), inf]
    cumulated = {bound: float(sum(value <= bound for value in values)) for bound in bounds}
    found = quantile(cumulated, share)
    assert found is not None
    ranked = next(
        value for rank, value in enumerate(sorted(values), 1) if rank >= share * len(values)
    )  # fmt: skip
    bucket = next(index for index, bound in enumerate(bounds) if ranked <= bound)
    low = bounds[bucket - 1] if bucket else 0.0
    high = bounds[bucket] if bounds[bucket] != inf else low
    assert low <= found <= high or found == pytest.approx(high)


@pytest.mark.parametrize("cumulated", [{}, {1.0: 3.0}, {1.0: 0.0, inf: 0.0}])
def test_there_is_no_quantile_of_nothing(cumulated: dict[float, float]) -> None:
    assert quantile(cumulated, 0.5) is None


def test_a_value_that_is_no_number_counts_for_nothing() -> None:
    text = 'sglang_fence_steps_total{fence="fine"} NaN\nsglang_fence_steps_total{fence="coarse"} 2\n'
    row = standing("u", parse(text, 0.0))
    assert (row.steps, row.fine_share) == (2, 0)
