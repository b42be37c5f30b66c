"""What Prometheus and Alertmanager are given, judged by promtool and amtool in the place where compose mounts it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.deploy.layout import DEPLOY, RULES, accepted, load, program
from tests.deploy.mounted import lay_out, services

if TYPE_CHECKING:
    from pathlib import Path

ALERTMANAGER = DEPLOY / "alertmanager" / "alertmanager.yml"


@pytest.mark.parametrize("service", ["prometheus", "prometheus-demo"])
def test_promtool_accepts_the_configuration_with_its_rules_and_targets(service: str, tmp_path: Path) -> None:
    promtool = program("promtool")
    etc = lay_out(service, tmp_path) / "etc" / "prometheus"
    printed = accepted(promtool, "check", "config", etc / "prometheus.yml")
    rules = sum(len(group["rules"]) for group in load(RULES)["groups"])
    assert "is valid prometheus config file syntax" in printed
    assert re.search(rf"SUCCESS: {rules} rules found", printed), printed


@pytest.mark.parametrize("service", ["prometheus", "prometheus-demo"])
def test_each_target_is_a_service_that_the_profile_starts(service: str, tmp_path: Path) -> None:
    etc = lay_out(service, tmp_path) / "etc" / "prometheus"
    job = next(job for job in load(etc / "prometheus.yml")["scrape_configs"] if job["job_name"] == "sglang")
    targets = [
        target
        for files in job["file_sd_configs"]
        for pattern in files["files"]
        for path in sorted(etc.glob(pattern))
        for group in load(path)
        for target in group["targets"]
    ]
    (profile,) = services()[service]["profiles"]
    assert targets
    for target in targets:
        host, port = target.split(":")
        # On the loopback there are those who share it.
        serving = [
            other
            for name, other in services().items()
            if (name == host or (host == "localhost" and other.get("network_mode") == f"service:{service}"))
            and other.get("profiles") == [profile]
        ]
        assert len(serving) == 1, target
        assert any(port in argument for argument in serving[0]["command"])


def test_prometheus_keeps_exemplars() -> None:
    commands = [service["command"] for name, service in services().items() if name.startswith("prometheus")]
    assert commands
    assert all("--enable-feature=exemplar-storage" in command for command in commands)


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
