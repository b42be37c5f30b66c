"""What Prometheus and Alertmanager are given, judged by promtool and amtool in the place where compose mounts it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.deploy.layout import DEPLOY, RULES, accepted, load, program
from tests.deploy.mounted import lay_out, services

if TYPE_CHECKING:
    from pathlib import Path

PROMETHEUS = DEPLOY / "prometheus" / "prometheus.yml"
ALERTMANAGER = DEPLOY / "alertmanager" / "alertmanager.yml"


def test_promtool_accepts_the_configuration_with_its_rules(tmp_path: Path) -> None:
    promtool = program("promtool")
    etc = lay_out("prometheus", tmp_path) / "etc" / "prometheus"
    printed = accepted(promtool, "check", "config", etc / "prometheus.yml")
    rules = sum(len(group["rules"]) for group in load(RULES)["groups"])
    assert "is valid prometheus config file syntax" in printed
    assert re.search(rf"SUCCESS: {rules} rules found", printed), printed


def test_each_server_is_found_by_its_name_at_the_port_that_it_serves() -> None:
    jobs = [job for job in load(PROMETHEUS)["scrape_configs"] if "dns_sd_configs" in job]
    found = {name: lookup["port"] for job in jobs for lookup in job["dns_sd_configs"] for name in lookup["names"]}
    optional = {name for name, service in services().items() if "profiles" in service}
    assert set(found) == optional
    for name, port in found.items():
        assert any(argument.endswith(f"port={port}") for argument in services()[name]["command"]), name
        assert "--host=0.0.0.0" in services()[name]["command"]


def test_prometheus_keeps_exemplars_and_tells_alertmanager() -> None:
    assert "--enable-feature=exemplar-storage" in services()["prometheus"]["command"]
    (alertmanager,) = load(PROMETHEUS)["alerting"]["alertmanagers"]
    (group,) = alertmanager["static_configs"]
    assert {target.split(":")[0] for target in group["targets"]} <= set(services())


def test_amtool_accepts_the_configuration(tmp_path: Path) -> None:
    amtool = program("amtool")
    etc = lay_out("alertmanager", tmp_path) / "etc" / "alertmanager"
    assert "SUCCESS" in accepted(amtool, "check-config", etc / "alertmanager.yml")


def alerts() -> list[dict[str, Any]]:
    """Return the alerts of the rules."""
    return [rule for group in load(RULES)["groups"] for rule in group["rules"] if "alert" in rule]


@pytest.mark.parametrize(("severity", "receiver"), [("critical", "page"), ("warning", "ticket")])
def test_a_severity_goes_where_it_belongs(severity: str, receiver: str) -> None:
    amtool = program("amtool")
    printed = accepted(
        amtool, "config", "routes", "test", f"--config.file={ALERTMANAGER}", f"severity={severity}", "alertname=Any"
    )
    assert printed.split() == [receiver]


def test_no_alert_has_a_severity_that_no_route_names() -> None:
    named = {
        value
        for route in load(ALERTMANAGER)["route"]["routes"]
        for matcher in route["matchers"]
        for value in re.findall(r'"(.+)"', matcher)
    }
    severities = {rule["labels"]["severity"] for rule in alerts()}
    assert severities == named


def test_a_webhook_is_told_that_it_is_over() -> None:
    webhooks = [hook for receiver in load(ALERTMANAGER)["receivers"] for hook in receiver["webhook_configs"]]
    assert webhooks
    assert all(hook["send_resolved"] for hook in webhooks)
