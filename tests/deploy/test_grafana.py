"""What Grafana is provisioned with: read-only, addresses of services that are there, dashboards where it looks."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from tests.deploy.layout import DASHBOARDS, DEPLOY, load
from tests.deploy.mounted import binds, services

PROVISIONING = DEPLOY / "grafana" / "provisioning"


def sources() -> dict[str, dict[str, Any]]:
    """Return the data sources by uid."""
    return {source["uid"]: source for source in load(PROVISIONING / "datasources" / "datasources.yml")["datasources"]}


def test_there_is_one_source_of_each_kind_and_nobody_may_change_it() -> None:
    assert sorted(source["type"] for source in sources().values()) == ["alertmanager", "prometheus", "tempo"]
    assert all(source["editable"] is False for source in sources().values())
    assert [uid for uid, source in sources().items() if source.get("isDefault")] == ["prometheus"]


def test_addresses_are_of_services_that_run_in_both_profiles() -> None:
    shared = {name for name, service in services().items() if "profiles" not in service}
    for source in sources().values():
        assert urlsplit(source["url"]).hostname in shared


def test_an_exemplar_leads_to_its_trace() -> None:
    (link,) = sources()["prometheus"]["jsonData"]["exemplarTraceIdDestinations"]
    # The label that the exporter gives exemplars.
    assert link["name"] == "trace_id"
    assert sources()[link["datasourceUid"]]["type"] == "tempo"


def test_the_rate_interval_is_made_from_the_interval_that_is_scraped_at() -> None:
    scraped = load(DEPLOY / "prometheus" / "prometheus.yml")["global"]["scrape_interval"]
    assert sources()["prometheus"]["jsonData"]["timeInterval"] == scraped
    monitor = load(DEPLOY / "kubernetes" / "base" / "podmonitor.yaml")
    assert {endpoint["interval"] for endpoint in monitor["spec"]["podMetricsEndpoints"]} == {scraped}


def test_dashboards_are_read_only_and_lie_where_it_looks() -> None:
    (provider,) = load(PROVISIONING / "dashboards" / "dashboards.yml")["providers"]
    assert provider["allowUiUpdates"] is False
    assert provider["disableDeletion"] is True
    mounted = {bind.target: bind.source for bind in binds(services()["grafana"])}
    assert mounted[provider["options"]["path"]] == DASHBOARDS
    assert mounted["/etc/grafana/provisioning"] == PROVISIONING
