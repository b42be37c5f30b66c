"""The catalogue: names, units, labels and buckets keep the rules of the tools that show them."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from sglang_fence import catalogue
from sglang_fence.catalogue import ATTRIBUTES, METRICS, NVTX_RANGES, SPANS, Metric, MetricKind, NvtxRange, Span, Unit
from sglang_fence.contract import REASONS, FallbackReason, FenceKind, ForwardMode, SharedReadEnds

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglang_fence.catalogue import Attribute

CLOSED = {
    "mode": {mode.value for mode in ForwardMode},
    "reason": {reason.value for reason in FallbackReason},
    "ends": {ends.name.lower() for ends in SharedReadEnds},
    "declared": {ends.name.lower() for ends in SharedReadEnds},
    "last": {"fence", "host"},
}

DESIGNED = {
    "sglang_fence_steps_total": ("mode", "backend", "ends", "fence"),
    "sglang_fence_coarse_fallbacks_total": ("mode", "backend", "reason"),
    "sglang_fence_slack_seconds": ("mode", "ends"),
    "sglang_fence_wait_seconds": ("mode", "fence"),
    "sglang_fence_forward_seconds": ("mode", "fence"),
    "sglang_fence_forward_gap_seconds": ("last",),
    "sglang_fence_lost_slack_seconds_total": ("mode", "reason"),
    "sglang_fence_lost_seconds_total": ("mode", "reason"),
    "sglang_fence_downgrades_total": ("backend", "mode", "cause"),
    "sglang_fence_unsound_resolutions_total": ("backend", "mode"),
    "sglang_fence_barrier_enabled": ("why",),
    "sglang_fence_declaration_info": ("backend", "mode", "declared"),
}

every_metric = pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)


@pytest.mark.parametrize("rows", [METRICS, SPANS, ATTRIBUTES, NVTX_RANGES])
def test_names_are_unique_and_explained(rows: tuple[Metric | Span | Attribute | NvtxRange, ...]) -> None:
    names = [row.name for row in rows]
    assert rows
    assert len(names) == len(set(names))
    assert all(len(row.help.split()) >= 3 for row in rows)


def test_the_shared_names_are_those_that_dashboards_were_promised() -> None:
    assert {name: catalogue.metric(name).label_names for name in DESIGNED} == DESIGNED


@every_metric
def test_a_metric_is_named_as_prometheus_asks(metric: Metric) -> None:
    assert re.fullmatch(r"sglang_fence(_[a-z][a-z0-9]*)+", metric.name)
    assert metric.name.endswith("_total") == (metric.kind is MetricKind.COUNTER)
    assert not metric.name.endswith(("_count", "_sum", "_bucket", "_created"))
    assert metric.help.endswith(".")
    for label in metric.labels:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", label.name), label
        assert label.name not in {"le", "quantile", "job", "instance", "model_name"}, label
        assert label.help, label
    assert len(set(metric.label_names)) == len(metric.labels)


@every_metric
def test_a_unit_is_in_the_name(metric: Metric) -> None:
    stem = metric.name.removesuffix("_total")
    assert stem.endswith("_seconds") == (metric.unit is Unit.SECONDS)
    assert not re.search(r"_(us|ms|ns|micros\w*|millis\w*|nanos\w*|minutes|percent)(_|$)", metric.name)


@every_metric
def test_only_histograms_have_buckets(metric: Metric) -> None:
    assert bool(metric.buckets) == (metric.kind is MetricKind.HISTOGRAM)


def test_buckets_are_exact_powers_of_two_from_a_microsecond_to_sixteen_seconds() -> None:
    buckets = catalogue.DURATION_BUCKETS
    assert [round(bound * 1_000_000) for bound in buckets] == [2**exponent for exponent in range(25)]
    assert [repr(bound) for bound in buckets[:5]] == ["1e-06", "2e-06", "4e-06", "8e-06", "1.6e-05"]
    assert repr(buckets[-1]) == "16.777216"
    assert all(low < high for low, high in pairwise(buckets))
    assert all(metric.buckets == buckets for metric in METRICS if metric.buckets)


@every_metric
def test_closed_sets_come_from_the_contract(metric: Metric) -> None:
    fence_kinds = {kind.value for kind in FenceKind}
    for label in metric.labels:
        if label.name in CLOSED:
            assert label.values is not None
            assert set(label.values) == CLOSED[label.name]
            assert len(label.values) == len(CLOSED[label.name])
        elif label.name == "fence" and metric.name != "sglang_fence_config_info":
            assert label.values is not None
            assert set(label.values) == fence_kinds
        else:
            assert label.values is None or (label.values and len(set(label.values)) == len(label.values))


def test_every_reason_is_a_label_value_and_is_documented() -> None:
    reasons = {label.values for metric in METRICS for label in metric.labels if label.name == "reason"}
    assert reasons == {tuple(reason.value for reason in FallbackReason)}
    assert all(REASONS[reason].meaning for reason in FallbackReason)
    assert set(catalogue.UNEXPECTED_REASONS) == {r.value for r, info in REASONS.items() if not info.expected}


@every_metric
def test_prometheus_takes_the_row_as_it_is(metric: Metric) -> None:
    registry = CollectorRegistry()
    values = {label.name: label.values[0] if label.values else "x" for label in metric.labels}
    if metric.kind is MetricKind.COUNTER:
        Counter(metric.name, metric.help, metric.label_names, registry=registry).labels(**values).inc()
    elif metric.kind is MetricKind.GAUGE:
        gauge = Gauge(metric.name, metric.help, metric.label_names, registry=registry)
        (gauge.labels(**values) if values else gauge).set(1)
    else:
        histogram = Histogram(metric.name, metric.help, metric.label_names, buckets=metric.buckets, registry=registry)
        histogram.labels(**values).observe(0.5)
    exposed = generate_latest(registry).decode()
    sample = f"{metric.name}_bucket" if metric.kind is MetricKind.HISTOGRAM else metric.name
    assert re.search(rf"^{sample}[{{ ]", exposed, re.MULTILINE)


def test_the_observer_accounts_for_itself() -> None:
    own = {metric.name for metric in METRICS if metric.name.startswith("sglang_fence_observer_")}
    assert own == {
        "sglang_fence_observer_calibration_seconds",
        "sglang_fence_observer_clamps_total",
        "sglang_fence_observer_clock_error_seconds",
        "sglang_fence_observer_cost_seconds_total",
        "sglang_fence_observer_dropped_steps_total",
        "sglang_fence_observer_errors_total",
        "sglang_fence_observer_timing_every",
        "sglang_fence_observer_unresolved_total",
    }


@pytest.mark.parametrize("span", SPANS, ids=lambda span: span.name)
def test_a_span_says_which_step_it_belongs_to(span: Span) -> None:
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", span.name)
    names = [attribute.name for attribute in span.attributes]
    assert names[0] == "sglang_fence.step_id"
    assert len(names) == len(set(names))


@pytest.mark.parametrize("attribute", ATTRIBUTES, ids=lambda attribute: attribute.name)
def test_an_attribute_has_a_namespace_and_only_texts_have_closed_sets(attribute: Attribute) -> None:
    assert re.fullmatch(r"sglang_fence(\.[a-z][a-z_]*)+", attribute.name)
    assert attribute.values is None or attribute.type is str
    assert (attribute.unit is Unit.SECONDS) <= (attribute.type is float)
    # OpenTelemetry: a name is either a value or a namespace, never both.
    assert not any(other.name.startswith(f"{attribute.name}.") for other in ATTRIBUTES)


def test_each_category_has_one_colour_and_each_colour_one_category() -> None:
    pairs = {(row.category, row.color) for row in NVTX_RANGES}
    assert {category for category, _ in pairs} == set(catalogue.Category)
    assert len({color for _, color in pairs}) == len(pairs) == len(catalogue.Category)
    assert all(color >> 24 == 0xFF for _, color in pairs)


def test_there_is_a_barrier_mark_for_each_kind_of_fence_that_is_applied() -> None:
    applied = {kind.value for kind in FenceKind} - {"absent"}
    assert {row.name for row in NVTX_RANGES if row.name.startswith("barrier.")} == {f"barrier.{k}" for k in applied}


@pytest.mark.parametrize(
    ("look_up", "name"),
    [
        (catalogue.metric, "sglang_fence_steps_total"),
        (catalogue.span, "barrier_wait"),
        (catalogue.attribute, "sglang_fence.reason"),
        (catalogue.nvtx_range, "barrier.fine"),
    ],
)
def test_a_row_is_found_by_name_and_a_wrong_name_is_told_the_right_ones(
    look_up: Callable[[str], Metric | Span | Attribute | NvtxRange],
    name: str,
) -> None:
    assert look_up(name).name == name
    with pytest.raises(LookupError, match=f"no .* 'sglang_fence_typo' in the catalogue.*{re.escape(name)}"):
        look_up("sglang_fence_typo")
