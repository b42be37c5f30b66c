"""PrometheusRule, PodMonitor and dashboards in Kubernetes: exactly what was checked elsewhere, in valid form."""

from __future__ import annotations

import importlib.util
import json
from typing import TYPE_CHECKING, Any

from tests.deploy.kustomizing import built, only
from tests.deploy.layout import DEPLOY, RULES, accepted, dashboards, dump, load, program

if TYPE_CHECKING:
    from pathlib import Path

BASE = DEPLOY / "kubernetes" / "base"
LARGEST = 1_000_000
"""Bytes of a ConfigMap's data; the API takes 1 MiB with everything."""

# The fields of monitoring.coreos.com/v1 by the operator's API reference. No package has schemas to check by.
GROUP = {"name", "interval", "rules", "labels", "limit", "query_offset", "partial_response_strategy"}
RECORDING = {"record", "expr", "labels"}
ALERT = {"alert", "expr", "for", "keep_firing_for", "labels", "annotations"}
ENDPOINT = {"port", "path", "scheme", "interval", "scrapeTimeout", "honorLabels", "relabelings", "metricRelabelings"}
MONITOR = {"jobLabel", "selector", "namespaceSelector", "podMetricsEndpoints", "podTargetLabels", "sampleLimit"}


def generated() -> dict[str, str]:
    """Return what deploy/kubernetes/generate.py makes."""
    spec = importlib.util.spec_from_file_location("generate", DEPLOY / "kubernetes" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    files: dict[str, str] = module.generated()
    return files


def test_what_is_generated_is_up_to_date() -> None:
    files = generated()
    there = {
        path.relative_to(BASE).as_posix(): path.read_text(encoding="utf-8")
        for path in [*(BASE / "dashboards").iterdir(), BASE / "rules" / "prometheusrule.yaml"]
    }
    stale = [name for name in files.keys() | there.keys() if files.get(name) != there.get(name)]
    assert not stale, "run deploy/kubernetes/generate.py"


def test_the_object_carries_exactly_the_rules_of_the_file() -> None:
    assert load(BASE / "rules" / "prometheusrule.yaml")["spec"] == load(RULES)


def test_the_built_object_does_too_and_promtool_accepts_what_it_carries(tmp_path: Path) -> None:
    spec = only("PrometheusRule")["spec"]
    assert spec == load(RULES)
    path = tmp_path / "rules.yaml"
    path.write_text(dump(spec), encoding="utf-8")
    count = sum(len(group["rules"]) for group in spec["groups"])
    assert f"{count} rules found" in accepted(program("promtool"), "check", "rules", path)


def test_the_rules_have_the_operators_fields_alone() -> None:
    document = load(BASE / "rules" / "prometheusrule.yaml")
    assert (document["apiVersion"], document["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    assert set(document["spec"]) == {"groups"}
    for group in document["spec"]["groups"]:
        assert set(group) <= GROUP
        for rule in group["rules"]:
            assert set(rule) <= (ALERT if "alert" in rule else RECORDING)
            texts = {**rule.get("labels", {}), **rule.get("annotations", {})}
            assert all(isinstance(text, str) for text in [rule["expr"], *texts.values()])


def test_the_monitor_has_the_operators_fields_and_asks_a_port_that_is_there() -> None:
    monitor = only("PodMonitor")
    assert monitor["apiVersion"] == "monitoring.coreos.com/v1"
    assert set(monitor["spec"]) <= MONITOR
    template = only("Deployment")["spec"]["template"]
    (container,) = template["spec"]["containers"]
    assert monitor["spec"]["jobLabel"] in template["metadata"]["labels"]
    for endpoint in monitor["spec"]["podMetricsEndpoints"]:
        assert set(endpoint) <= ENDPOINT
        assert endpoint["port"] in {port["name"] for port in container["ports"]}


def test_each_dashboard_is_a_config_map_that_grafanas_sidecar_finds() -> None:
    maps = [document for document in built() if document["kind"] == "ConfigMap"]
    carried: dict[str, Any] = {}
    for document in maps:
        assert document["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert sum(map(len, document["data"].values())) < LARGEST
        carried |= {name: json.loads(text) for name, text in document["data"].items()}
    assert carried == dashboards()
    assert len(maps) == len(carried)
