"""Multiprocess mode: real processes, whose sum is right and whose series are those of the other mode."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from sglang_fence.catalogue import METRICS
from sglang_fence.errors import ConfigError
from sglang_fence.observe.exporting import ExportContext
from sglang_fence.observe.ledger import Ledger
from sglang_fence_exporters.prometheus import MultiprocessExporter, make
from sglang_fence_exporters.prometheus_children import HistogramSeries, make_series
from sglang_fence_exporters.prometheus_reading import read
from tests.exporters.prometheus.scraped import Series, families_of, scraped, series_of, total
from tests.exporters.prometheus.steps import COARSE, FINE, add, declared_ledger, full_ledger

ROOT = Path(__file__).resolve().parents[3]


def start(folder: Path, kind: str, rank: str, fine: int, coarse: int) -> subprocess.Popen[str]:
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(folder)}
    arguments = [kind, rank, str(fine), str(coarse)]
    command = [sys.executable, "-m", "tests.exporters.prometheus.worker", *arguments]
    return subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)


def run_all(processes: list[subprocess.Popen[str]]) -> None:
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert (process.returncode, errors) == (0, "")


def page_of(folder: Path) -> str:
    registry = CollectorRegistry()
    MultiProcessCollector(registry, path=str(folder))  # type: ignore[no-untyped-call] # it is untyped
    return generate_latest(registry).decode()


def script(folder: Path | None, code: str) -> str:
    """Run ``code`` in a process of its own, in multiprocess mode if there is a folder, and return what it prints."""
    environment = {name: value for name, value in os.environ.items() if name != "PROMETHEUS_MULTIPROC_DIR"}
    if folder is not None:
        environment["PROMETHEUS_MULTIPROC_DIR"] = str(folder)
    head = (
        "from sglang_fence_exporters.prometheus import *\n"
        "from sglang_fence.observe.exporting import ExportContext\n"
        "from tests.exporters.prometheus.steps import *\n"
    )
    command = [sys.executable, "-c", head + code]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_four_processes_add_up(tmp_path: Path) -> None:
    parts = [(10, 1), (20, 2), (30, 0), (40, 4)]
    run_all([start(tmp_path, "declared", "", fine, coarse) for fine, coarse in parts])
    series = series_of(families_of(page_of(tmp_path)))
    fine, coarse = sum(f for f, _ in parts) + len(parts), sum(c for _, c in parts)
    assert total(series, "sglang_fence_steps_total", fence="fine") == fine
    assert total(series, "sglang_fence_coarse_fallbacks_total") == coarse
    assert total(series, "sglang_fence_slack_seconds_count") == fine
    assert total(series, "sglang_fence_slack_seconds_sum") == pytest.approx(fine * 900e-6)
    assert total(series, "sglang_fence_wait_seconds_bucket", le="1e-06") == fine
    assert total(series, "sglang_fence_wait_seconds_bucket", le="+Inf") == fine + coarse
    assert total(series, "sglang_fence_lost_seconds_total", reason="backend_unknown") == pytest.approx(coarse * 25e-6)


def test_ranks_stay_apart(tmp_path: Path) -> None:
    run_all([start(tmp_path, "declared", str(rank), rank, 0) for rank in range(2)])
    series = series_of(families_of(page_of(tmp_path)))
    steps = [total(series, "sglang_fence_steps_total", tp_rank=str(rank)) for rank in range(2)]
    assert steps == [1, 2]
    assert total(series, "sglang_fence_observer_timing_every", tp_rank="0") == 8
    assert total(series, "sglang_fence_observer_timing_every", tp_rank="1") == 8


def test_series_labels_help_and_numbers_are_those_of_the_other_mode(tmp_path: Path) -> None:
    run_all([start(tmp_path, "full", "", 5, 2)])
    ledger = full_ledger()
    add(ledger, [*[FINE] * 5, *[COARSE] * 2, FINE])
    ledger.facts.loop = "disaggregated"
    expected: Series = dict(scraped(ledger))
    # A gauge that is no longer told can't go.
    expected["sglang_fence_loop_info", frozenset({("loop", "overlap")})] = 0
    families = families_of(page_of(tmp_path))
    assert series_of(families) == pytest.approx(expected)
    help_of = {metric.name.removesuffix("_total"): metric.help for metric in METRICS}
    assert {family.name: family.documentation for family in families} == help_of


def test_the_thread_writes_by_itself_and_the_factory_takes_the_mode_from_the_environment(tmp_path: Path) -> None:
    out = script(
        tmp_path,
        """
import threading, time
ledger = declared_ledger()
exporter = MultiprocessExporter(ledger, interval_s=0.01)
add(ledger, [FINE] * 3)
from prometheus_client import REGISTRY
labels = dict(mode="decode", backend="native", ends="in_replay", fence="fine")
deadline = time.monotonic() + 60
while REGISTRY.get_sample_value("sglang_fence_steps_total", labels) != 3 and time.monotonic() < deadline:
    threading.Event().wait(0.005)
print(REGISTRY.get_sample_value("sglang_fence_steps_total", labels))
exporter.close(); exporter.close()
print([thread.name for thread in threading.enumerate()])
""",
    )
    assert out.splitlines() == ["3.0", "['MainThread']"]
    out = script(tmp_path, "e = make(ExportContext(ledger=full_ledger())); e.run_ended(); print(e.port); e.close()")
    assert out == "None\n"
    assert total(series_of(families_of(page_of(tmp_path))), "sglang_fence_loop_info", loop="overlap") == 1


def test_the_factory_hands_on_constant_labels(tmp_path: Path) -> None:
    script(tmp_path, "e = make(ExportContext(ledger=full_ledger(), labels={'tp_rank': '1'})); e.close()")
    series = series_of(families_of(page_of(tmp_path)))
    assert series
    assert all(dict(labels)["tp_rank"] == "1" for _, labels in series)


def test_a_port_and_multiprocess_mode_go_together(tmp_path: Path) -> None:
    code = """
from tests.exporters.prometheus.scraped import get
ledger = declared_ledger(); add(ledger, [FINE])
e = make(ExportContext(ledger=ledger, metrics_port=0))
print("fence=\\"fine\\",mode=\\"decode\\"} 1.0" in get(e.port)); e.close()
"""
    assert script(tmp_path, code) == "True\n"
    assert total(series_of(families_of(page_of(tmp_path))), "sglang_fence_steps_total") == 1


def test_a_write_that_fails_is_logged_once_and_given_up_after_ten(tmp_path: Path) -> None:
    out = script(
        tmp_path,
        """
import logging, sys
logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(message)s", level=logging.ERROR)
ledger = declared_ledger()
exporter = MultiprocessExporter(ledger, interval_s=0.001)
cells, ledger.cells = ledger.cells, None
exporter._thread.join(60)
ledger.cells = cells
add(ledger, [FINE])
exporter.close()
""",
    )
    said = [line for line in out.splitlines() if line.startswith(("ERROR", "Traceback"))]
    assert said == [
        "ERROR metrics can't be written; serving goes on",
        "Traceback (most recent call last):",
        "ERROR metrics could not be written 10 times and are given up",
    ]
    # What is added later still goes out at the end.
    assert total(series_of(families_of(page_of(tmp_path))), "sglang_fence_steps_total") == 1


REFUSALS: list[tuple[str, str]] = [
    ("", "PROMETHEUS_MULTIPROC_DIR names '', which is no folder"),
    ("/no/such/folder", "PROMETHEUS_MULTIPROC_DIR names '/no/such/folder', which is no folder"),
]


@pytest.mark.parametrize(("folder", "words"), REFUSALS)
def test_a_folder_that_is_not_there_is_named(folder: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", folder)
    with pytest.raises(ConfigError, match=words):
        make(ExportContext(ledger=Ledger()))


def test_it_needs_the_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROMETHEUS_MULTIPROC_DIR", raising=False)
    with pytest.raises(ConfigError, match="PROMETHEUS_MULTIPROC_DIR is not set: set it"):
        MultiprocessExporter(Ledger())


def test_a_client_that_was_imported_too_early_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # This very process has imported it long ago.
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    with pytest.raises(ConfigError, match=r"prometheus_client was imported before.*set it earlier"):
        MultiprocessExporter(Ledger())


def test_a_client_that_keeps_buckets_elsewhere_costs_the_histograms_alone(caplog: pytest.LogCaptureFixture) -> None:
    registry = CollectorRegistry()
    series = make_series({}, registry)
    slack = series["sglang_fence_slack_seconds"]
    assert isinstance(slack, HistogramSeries)
    child = slack._histogram.labels("decode", "in_replay")
    child._buckets = child._buckets[:-1]
    ledger = full_ledger()
    for _ in range(2):
        for reading in read(ledger):
            for _ in series[reading.metric.name].bring_to(reading):
                pass
    (said,) = caplog.messages
    assert said.startswith("sglang_fence_slack_seconds is left out: this prometheus_client keeps buckets elsewhere")
    rest = [metric.name for metric in METRICS if metric.name != "sglang_fence_slack_seconds"]
    names = [name + suffix for name in rest for suffix in ("", "_count")]
    found = series_of(registry.restricted_registry(names).collect())
    assert {name.removesuffix("_count") for name, _ in found} == set(rest)
    assert total(found, "sglang_fence_wait_seconds_count") == 3


def test_differences_are_added_once_whatever_was_written_before() -> None:
    registry = CollectorRegistry()
    series = make_series({"rank": "1"}, registry)
    ledger = declared_ledger()
    for _ in range(3):
        add(ledger, [FINE, COARSE])
        for reading in read(ledger):
            for _ in series[reading.metric.name].bring_to(reading):
                pass
    found = series_of(registry.collect())
    kept = {key: value for key, value in found.items() if not key[0].endswith("_created")}
    assert kept == pytest.approx(scraped(ledger, {"rank": "1"}))
