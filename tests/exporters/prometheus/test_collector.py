"""In-process: names, labels, help, numbers and exemplars of a scrape are the catalogue's and the ledger's."""

from __future__ import annotations

import subprocess
import sys
import threading
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram

from sglang_fence.catalogue import DURATION_BUCKETS, METRICS, MetricKind, metric
from sglang_fence.catalogue.metrics import DOWNGRADE_CAUSE, DURATION
from sglang_fence.contract import FallbackReason, FenceKind, ForwardMode, SharedReadEnds
from sglang_fence.errors import ConfigError
from sglang_fence.fence.publication import NO_MARKER
from sglang_fence.observe.ledger import Ledger
from sglang_fence.observe.observer import HOOKS
from sglang_fence_exporters.prometheus import FenceCollector
from sglang_fence_exporters.prometheus_reading import read
from tests.exporters.prometheus.scraped import families_of, openmetrics_families, scraped, series_of, text_of, total
from tests.exporters.prometheus.steps import (
    COARSE,
    FINE,
    TRACE_ID,
    Step,
    add,
    declared_ledger,
    full_ledger,
    steps,
    trace_of,
)

PREFIX = "sglang_fence_"


def test_every_metric_of_the_catalogue_comes_out_with_its_help_labels_and_kind_and_nothing_else() -> None:
    families = {family.name: family for family in families_of(text_of(full_ledger()))}
    by_family = {metric.name.removesuffix("_total"): metric for metric in METRICS}
    assert set(families) == set(by_family)
    for name, family in families.items():
        row = by_family[name]
        assert (family.documentation, family.type) == (row.help, row.kind.value)
        assert family.samples
        for sample in family.samples:
            own = {"le"} if sample.name.endswith("_bucket") else set[str]()
            assert set(sample.labels) == set(row.label_names) | own, sample
            assert sample.name.removeprefix(row.name) in (
                {"_bucket", "_count", "_sum"} if row.kind is MetricKind.HISTOGRAM else {""}
            )


def test_label_values_are_those_that_the_catalogue_lists() -> None:
    series = scraped(full_ledger())
    for row, label in ((one, label) for one in METRICS for label in one.labels if label.values):
        found = {dict(labels)[label.name] for (name, labels) in series if name.startswith(row.name)}
        assert found, row
        assert found <= set(label.values or ()), (row.name, label.name)


def test_the_order_of_labels_is_the_catalogues_so_that_values_are_not_mixed_up() -> None:
    # A label's values may overlap with another's (ends and declared): numbers tell which is which.
    series = scraped(full_ledger())
    expected = {
        ("steps_total", ("decode", "native", "in_replay", "fine")): 3,
        ("steps_total", ("extend", "native", "unknown", "coarse")): 1,
        ("coarse_fallbacks_total", ("extend", "native", "backend_unknown")): 1,
        ("lost_seconds_total", ("extend", "backend_unknown")): 25e-6,
        ("lost_slack_seconds_total", ("extend", "backend_unknown")): 4e-3,
        ("downgrades_total", ("native", "decode", "no_marker")): 1,
        ("unsound_resolutions_total", ("native", "decode")): 1,
        ("publications_total", ("decode", "target", "native", "post_replay")): 1,
        ("publications_total", ("decode", "target", "native", "in_replay")): 3,
        ("owner_changes_total", ("draft",)): 6,
        ("stale_publications_total", ("target",)): 7,
        ("unoverlapped_launches_total", ("extend",)): 8,
        ("barrier_enabled", ("asynchronous_device",)): 1,
        ("declaration_info", ("native", "extend", "unknown")): 1,
        ("config_info", ("1.2.3", "", "", "simulated", "", "", "", "", "true", "false", "true")): 1,
        ("audit_result", ("native", "decode", "in_replay", "sound")): 1,
        ("audit_result", ("native", "decode", "in_replay", "unsound")): 0,
        ("observer_cost_seconds_total", ("step_finished",)): 1.5e-6,
        ("observer_dropped_steps_total", ("queue",)): 2,
        ("observer_clamps_total", ("slack",)): 1,
        ("observer_unresolved_total", ("overrun",)): 1,
        ("observer_errors_total", ("step_traced",)): 4,
        ("observer_calibration_seconds", ("idle_wait",)): 2.75e-6,
        ("exporter_dropped_steps_total", ("otel",)): 3,
        ("device_timing_enabled", ("timing_events",)): 1,
        ("observer_timing_every", ()): 8,
        ("observer_clock_error_seconds", ()): 5e-7,
        ("plugin_hook", ("sglang.srt.managers.scheduler.Scheduler.run_batch", "installed")): 1,
        ("loop_info", ("overlap",)): 1,
        ("slack_seconds_count", ("decode", "in_replay")): 2,
        ("slack_seconds_sum", ("decode", "in_replay")): 1.8e-3,
        ("wait_seconds_sum", ("extend", "coarse")): 20e-6,
        ("forward_seconds_sum", ("extend", "coarse")): 5e-3,
        ("forward_gap_seconds_sum", ("host",)): 6e-6,
    }
    for (name, values), number in expected.items():
        row = metric(PREFIX + name.removesuffix("_count").removesuffix("_sum"))
        key = (PREFIX + name, frozenset(zip(row.label_names, values, strict=True)))
        assert series[key] == pytest.approx(number, rel=1e-12), (name, values)
    named = {metric(PREFIX + name.removesuffix("_count").removesuffix("_sum")).name for name, _ in expected}
    assert named == {row.name for row in METRICS}


def test_whatever_can_go_wrong_is_there_at_zero_from_the_start() -> None:
    series = scraped(declared_ledger())
    assert not any(value for (name, _), value in series.items() if metric_is_counter(name))
    reasons = {reason.value for reason in FallbackReason}
    pairs = set(product(("decode", "extend"), reasons))
    for name in ("coarse_fallbacks_total", "lost_seconds_total", "lost_slack_seconds_total"):
        found = [dict(labels) for (full, labels) in series if full == PREFIX + name]
        assert {(labels["mode"], labels["reason"]) for labels in found} == pairs
        assert len(found) == len(pairs)
    seeded = {name: {dict(labels)[key] for (full, labels) in series if full == PREFIX + name} for name, key in (
        ("downgrades_total", "cause"),
        ("observer_clamps_total", "duration"),
        ("observer_errors_total", "hook"),
        ("owner_changes_total", "runner"),
        ("unsound_resolutions_total", "mode"),
    )}  # fmt: skip
    assert seeded == {
        "downgrades_total": {NO_MARKER},
        "observer_clamps_total": set(DURATION.values or ()),
        "observer_errors_total": set(HOOKS),
        "owner_changes_total": {"target", "draft"},
        "unsound_resolutions_total": {"decode", "extend"},
    }
    assert {NO_MARKER} == set(DOWNGRADE_CAUSE.values or ())


def metric_is_counter(name: str) -> bool:
    return name.endswith("_total")


def test_no_series_of_a_mode_and_backend_that_were_declared_is_born_with_an_increase() -> None:
    ledger = declared_ledger()
    before = scraped(ledger)
    add(ledger, [FINE, COARSE])
    born = {key for key in scraped(ledger) if key not in before}
    # Who serves the phases isn't declared.
    assert {name for name, _ in born} == {f"{PREFIX}publications_total"}


def test_reasons_of_a_pair_that_nobody_declared_come_with_its_first_step() -> None:
    ledger = declared_ledger()
    add(ledger, [Step(backend="other", mode=ForwardMode.TARGET_VERIFY)])
    found = [
        dict(labels)["reason"]
        for (name, labels) in scraped(ledger)
        if name == f"{PREFIX}coarse_fallbacks_total" and ("backend", "other") in labels
    ]
    assert sorted(found) == sorted(reason.value for reason in FallbackReason)


def test_only_a_coarse_step_is_a_fallback() -> None:
    ledger = Ledger()
    add(ledger, [Step(fence=FenceKind.DISABLED, reason=FallbackReason.FORCED, us={"lost_us": 1.0}), COARSE])
    series = scraped(ledger)
    assert total(series, f"{PREFIX}coarse_fallbacks_total") == 1
    assert total(series, f"{PREFIX}lost_seconds_total") == pytest.approx(25e-6)


def test_a_switched_off_barrier_seeds_no_fence_that_it_will_not_apply() -> None:
    ledger = declared_ledger()
    ledger.facts.barrier_enabled = False
    found = {dict(labels)["fence"] for (name, labels) in scraped(ledger) if name == f"{PREFIX}steps_total"}
    assert found == {"disabled"}


def test_a_loop_without_a_fence_seeds_steps_and_forwards_that_have_none() -> None:
    for enabled in (False, True):  # the runtime says that its barrier is off there, the plugin what SGLang has decided
        ledger = declared_ledger()
        ledger.facts.loop, ledger.facts.barrier_enabled = "normal", enabled
        names = {f"{PREFIX}steps_total", f"{PREFIX}forward_seconds_count"}
        found = {(name, dict(labels)["fence"]) for (name, labels) in scraped(ledger) if name in names}
        assert found == {(name, "absent") for name in names}


def test_without_device_times_nothing_claims_that_nothing_is_lost() -> None:
    ledger = declared_ledger()
    ledger.facts.timing_enabled = False
    add(ledger, [Step(timed=False), Step(fence=FenceKind.COARSE, reason=FallbackReason.STALE, timed=False)])
    names = {name for name, _ in scraped(ledger)}
    assert not [name for name in names if "_seconds" in name]
    assert {f"{PREFIX}steps_total", f"{PREFIX}coarse_fallbacks_total", f"{PREFIX}device_timing_enabled"} <= names


def test_what_was_not_told_is_not_claimed() -> None:
    names = {name.removeprefix(PREFIX) for name, _ in scraped(Ledger())}
    assert names == {
        "owner_changes_total",
        "stale_publications_total",
        "observer_clamps_total",
        "observer_errors_total",
    }


@given(st.lists(steps(), max_size=30))
def test_sums_hold_for_any_steps(taken: list[Step]) -> None:
    ledger = declared_ledger()
    add(ledger, taken)
    series = series_of(FenceCollector(ledger).collect())
    coarse = [step for step in taken if step.fence is FenceKind.COARSE]
    assert total(series, f"{PREFIX}steps_total") == len(taken)
    assert total(series, f"{PREFIX}steps_total", fence="coarse") == len(coarse)
    assert total(series, f"{PREFIX}coarse_fallbacks_total") == len(coarse)
    for mode in ForwardMode:
        of_mode = [step for step in taken if step.mode is mode]
        assert total(series, f"{PREFIX}steps_total", mode=mode.value) == len(of_mode)
    for reason in FallbackReason:
        of_reason = [step for step in coarse if step.reason is reason]
        assert total(series, f"{PREFIX}coarse_fallbacks_total", reason=reason.value) == len(of_reason)
        lost = sum(step.us.get("lost_us", 0.0) for step in of_reason) / 1e6
        assert total(series, f"{PREFIX}lost_seconds_total", reason=reason.value) == pytest.approx(lost)
    assert total(series, f"{PREFIX}downgrades_total") == sum(step.downgrade is not None for step in taken)
    assert total(series, f"{PREFIX}unsound_resolutions_total") == sum(s.resolved < s.declared for s in taken)
    assert total(series, f"{PREFIX}publications_total") == len(taken)


@given(st.lists(steps(), max_size=30))
def test_histograms_are_what_the_clients_own_would_be(taken: list[Step]) -> None:
    ledger = declared_ledger()
    add(ledger, taken)
    reference = CollectorRegistry()
    slack, wait, forward, gap = (
        Histogram(row.name, row.help, row.label_names, buckets=row.buckets, registry=reference)
        for row in METRICS
        if row.kind is MetricKind.HISTOGRAM
    )
    for step in taken:
        ends, fence, mode = step.resolved.name.lower(), step.fence.value, step.mode.value
        for histogram, labels, name in (
            (slack, (mode, ends), "slack_us"),
            (wait, (mode, fence), "wait_us"),
            (forward, (mode, fence), "forward_us"),
            (gap, (step.gap_last,), "gap_us"),
        ):
            if name in step.us:
                histogram.labels(*labels).observe(step.us[name] / 1e6)
    expected = {key: value for key, value in series_of(reference.collect()).items() if not key[0].endswith("_created")}
    found = series_of(FenceCollector(ledger).collect())
    assert {key: found.get(key) for key in expected} == pytest.approx(expected)
    rest = {key: value for key, value in found.items() if "_seconds_" in key[0] and key not in expected}
    assert not any(value for (name, _), value in rest.items() if not name.endswith("_total"))


@pytest.mark.parametrize("bucket", range(len(DURATION_BUCKETS)))
def test_a_bound_belongs_to_its_own_bucket(bucket: int) -> None:
    ledger = Ledger()
    add(ledger, [Step(us={"slack_us": 2.0**bucket}), Step(us={"slack_us": 2.0**bucket + 0.25})])
    counts = [
        value
        for (name, labels), value in scraped(ledger).items()
        if name == f"{PREFIX}slack_seconds_bucket" and float(dict(labels)["le"]) == DURATION_BUCKETS[bucket]
    ]
    assert counts == [1]


def test_openmetrics_has_the_newest_trace_of_each_bucket_and_plain_text_has_none() -> None:
    ledger = Ledger()
    fine = FINE
    other = Step(resolved=SharedReadEnds.IN_REPLAY, declared=SharedReadEnds.PRE_REPLAY, us={"slack_us": 901.0})
    add(ledger, [fine, other])
    ledger.add_exemplar(trace_of(other, 1_700_000_000_250_000_000), "f" * 32)
    ledger.add_exemplar(trace_of(fine, 1_700_000_000_125_000_000), TRACE_ID)
    registry = CollectorRegistry()
    registry.register(FenceCollector(ledger))
    families = openmetrics_families(registry)
    found = {
        (sample.name.removeprefix(PREFIX), sample.labels["le"]): sample.exemplar
        for family in families
        for sample in family.samples
        if sample.exemplar
    }
    # Both slacks are in one bucket of two cells, which are one series: the newer one is shown.
    assert {key: exemplar.labels["trace_id"] for key, exemplar in found.items()} == {
        ("slack_seconds_bucket", "0.001024"): "f" * 32,
        ("wait_seconds_bucket", "1e-06"): TRACE_ID,
        ("forward_seconds_bucket", "0.001024"): TRACE_ID,
        ("forward_gap_seconds_bucket", "4e-06"): TRACE_ID,
    }
    newest = found["slack_seconds_bucket", "0.001024"]
    assert (newest.value, float(newest.timestamp or 0)) == (0.000901, 1_700_000_000.25)
    assert {family.unit for family in families if family.name.endswith("_seconds")} == {"seconds"}
    assert TRACE_ID not in text_of(ledger)


def test_constant_labels_are_on_every_series() -> None:
    labels = {"model_name": 'a "b"\\c', "tp_rank": 3}
    plain = scraped(full_ledger())
    extra = {("model_name", 'a "b"\\c'), ("tp_rank", "3")}
    assert scraped(full_ledger(), labels) == {(name, own | extra): value for (name, own), value in plain.items()}


@pytest.mark.parametrize("name", ["backend", "le", "pid", "0rank", "a-b", "__x", ""])
def test_a_label_that_cannot_be_is_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"'{name}'.*: (use|give)"):
        FenceCollector(Ledger(), {name: "x"})


def test_registering_reads_nothing_and_a_second_one_is_refused() -> None:
    registry = CollectorRegistry(auto_describe=True)
    ledger = Ledger()
    ledger.facts = None  # type: ignore[assignment] # a reading would trip over it
    registry.register(FenceCollector(ledger))
    with pytest.raises(ValueError, match="Duplicated"):
        registry.register(FenceCollector(ledger))


def test_one_metric_can_be_asked_for() -> None:
    registry = CollectorRegistry()
    registry.register(FenceCollector(full_ledger()))
    families = list(registry.restricted_registry([f"{PREFIX}steps_total"]).collect())
    assert [family.name for family in families] == [f"{PREFIX}steps"]


def test_a_reading_does_not_mind_what_the_serving_thread_adds_meanwhile() -> None:
    ledger = declared_ledger()
    ended = threading.Event()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads change every few operations, so that what isn't safe shows

    def serve() -> None:
        number = 0
        while not ended.is_set():
            number += 1
            ledger.health.errors[f"hook{number}"] += 1
            ledger.health.hooks[f"target{number}"] = "installed"
            ledger.clamps[f"duration{number}"] += 1
            if number == 2_000:
                number = 0
                ledger.health.errors.clear()
                ledger.health.hooks.clear()
                ledger.clamps.clear()

    server = threading.Thread(target=serve)
    server.start()
    try:
        for _ in range(100):
            assert len(list(read(ledger))) == len(METRICS)
    finally:
        ended.set()
        server.join()
        sys.setswitchinterval(interval)


def test_importing_decides_nothing_about_the_clients_mode() -> None:
    modules = (
        "sglang_fence_exporters.prometheus, sglang_fence.cli, sglang_fence.cli.top.page, sglang_fence.observe.ledger"
    )
    code = f"import sys, {modules}; sys.exit('prometheus_client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=120).returncode == 0
