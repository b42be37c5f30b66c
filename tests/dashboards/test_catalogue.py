"""What dashboards, rules, runbooks and docs name is in the catalogue, and what the catalogue has is on a dashboard."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sglang_fence.catalogue import METRICS, Metric, MetricKind
from sglang_fence.mixin.parameters import Parameters
from sglang_fence.mixin.recording import CONSTANT_LABELS, recording_rules
from sglang_fence.mixin.rules import alerts
from tests.dashboards.boards import boards, targets

ROOT = Path(__file__).resolve().parents[2]

NOT_SHOWN: dict[str, str] = {}
"""Metrics that no dashboard shows, each with its reason."""

SCRAPED = {"job", "instance"}
"""Labels that Prometheus adds."""
MADE = {"le", "__name__", "alertname", "alertstate", "severity"}
"""Of histograms, and of alerts."""
NO_METRICS = {"sglang_fence_exporters"}
"""Words that look like a metric: a package."""


@dataclass
class Known:
    """What may be named."""

    labels: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    """By the name of a series."""
    values: dict[tuple[str, str], set[str]] = field(default_factory=dict[tuple[str, str], set[str]])
    """By series and label, where the set is closed."""


def known(metrics: tuple[Metric, ...] = METRICS) -> Known:
    found = Known()
    for metric in metrics:
        suffixes = ("_bucket", "_count", "_sum") if metric.kind is MetricKind.HISTOGRAM else ("",)
        for suffix in suffixes:
            name = metric.name + suffix
            found.labels[name] = {*metric.label_names, *CONSTANT_LABELS, *SCRAPED, *MADE}
            for label in metric.labels:
                if label.values is not None:
                    found.values[name, label.name] = set(label.values)
    return found


def misnamed(expr: str, catalogue: Known) -> list[str]:
    """Return what ``expr`` names that isn't there: metrics, labels of matchers, and values of closed labels."""
    wrong: list[str] = []
    for name, matchers in re.findall(r"\b(sglang_fence_\w+)(\{[^}]*\})?", expr):
        if name not in catalogue.labels:
            wrong.append(name)
            continue
        for label, operator, value in re.findall(r'(\w+)\s*(=~|!~|!=|=)\s*\\?"([^"\\]*)', matchers):
            if label not in catalogue.labels[name]:
                wrong.append(f"{name}{{{label}}}")
            closed = catalogue.values.get((name, label))
            parts = value.split("|") if "~" in operator else [value]
            if closed is not None and "$" not in value and not set(parts) <= closed:
                wrong.append(f"{name}{{{label}={value}}}")
    every = set().union(*catalogue.labels.values())
    for labels in re.findall(r"\b(?:by|without|on|ignoring|group_left)\s*\(([\w, ]*)\)", expr):
        wrong += [f"by ({label})" for label in re.findall(r"\w+", labels) if label not in every]
    return wrong


def expressions() -> dict[str, str]:
    """Return everything that is PromQL, by where it stands."""
    found = {f"{target.board}, {target.panel}, {n}": target.expr for n, target in enumerate(targets())}
    for uid, board in boards().items():
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                found[f"{uid}, ${variable['name']}"] = variable["query"]
    parameters = Parameters()
    found |= {rule.record: rule.expr for rule in recording_rules(parameters)}
    for number, alert in enumerate(alerts(parameters)):
        found[f"{alert.name}, {number}"] = alert.expr
        found[f"{alert.name}, {number}, text"] = alert.description
    return found


def pages() -> list[Path]:
    found = sorted([*(ROOT / "dashboards").rglob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / "README.md"])
    assert len(found) > 10
    return found


def test_every_query_names_what_the_catalogue_has() -> None:
    everything = expressions()
    assert len(everything) > 80
    catalogue = known()
    assert {where: wrong for where, expr in everything.items() if (wrong := misnamed(expr, catalogue))} == {}


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_every_page_names_what_the_catalogue_has(page: Path) -> None:
    catalogue = known()
    everything = {*catalogue.labels, *(metric.name for metric in METRICS), *NO_METRICS}
    names: set[str] = set(re.findall(r"\b(sglang_fence_\w+[^\W_])(?!_?…|\.\w)", page.read_text(encoding="utf-8")))
    assert {name for name in names if name not in everything} == set()
    queries = re.findall(r"```promql\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    recorded = {rule.record for rule in recording_rules(Parameters())}
    for query in queries:
        assert misnamed(query, catalogue) == []
        assert set(re.findall(r"\bsglang_fence:[\w:]+", query)) <= recorded


def test_every_recording_rule_that_is_read_is_there_and_each_is_read() -> None:
    recorded = {rule.record for rule in recording_rules(Parameters())}
    read = {name for expr in expressions().values() for name in re.findall(r"\bsglang_fence:[\w:]+", expr)}
    pages_read = {name for page in pages() for name in re.findall(r"\bsglang_fence:[\w:]+", page.read_text("utf-8"))}
    assert read <= recorded
    assert recorded <= read | pages_read


def test_every_metric_is_on_a_dashboard_or_has_a_reason() -> None:
    shown: set[str] = {name for target in targets() for name in re.findall(r"\bsglang_fence_\w+", target.expr)}
    catalogue = {metric.name: {name for name in shown if name.startswith(metric.name)} for metric in METRICS}
    assert {name for name, series in catalogue.items() if not series} == set(NOT_SHOWN)
    assert all(NOT_SHOWN.values())


@pytest.mark.parametrize(
    ("expr", "wrong"),
    [
        ("rate(sglang_fence_step_total[5m])", ["sglang_fence_step_total"]),
        ('sglang_fence_steps_total{kind="x"}', ["sglang_fence_steps_total{kind}"]),
        ('sglang_fence_steps_total{mode="decoding"}', ["sglang_fence_steps_total{mode=decoding}"]),
        ('sglang_fence_steps_total{mode=~"decode|verify"}', ["sglang_fence_steps_total{mode=decode|verify}"]),
        ("sum by (rank) (sglang_fence_steps_total)", ["by (rank)"]),
        ("sglang_fence_slack_seconds", ["sglang_fence_slack_seconds"]),
        ('sum without (tp_rank) (rate(sglang_fence_steps_total{fence="fine"}[5m]))', []),
    ],
)
def test_the_check_sees_a_wrong_name(expr: str, wrong: list[str]) -> None:
    assert misnamed(expr, known()) == wrong


def test_a_metric_that_leaves_the_catalogue_breaks_the_dashboards() -> None:
    without = known(tuple(metric for metric in METRICS if metric.name != "sglang_fence_lost_seconds_total"))
    assert any("sglang_fence_lost_seconds_total" in misnamed(expr, without) for expr in expressions().values())


def test_labels_of_servers_are_those_that_the_plugin_puts_on_series() -> None:
    source = (ROOT / "sglang_fence" / "sglang_plugin" / "labels.py").read_text(encoding="utf-8")
    assert {*re.findall(r'"(model_name|\w+_rank)":', source), *re.findall(r'labels\["(\w+)"\]', source)} == set(
        CONSTANT_LABELS
    )
