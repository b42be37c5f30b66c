"""The Kubernetes overlay: built by a real kustomize, valid for three releases, hardened, and whole."""

from __future__ import annotations

from typing import Any

import pytest

from sglang_fence.sglang_plugin.switches import problems
from tests.deploy.kustomizing import built, only
from tests.deploy.layout import PINNED

RELEASES = ("1.35", "1.36", "1.37")
"""Of Kubernetes: the three newest that the schemas' package has."""

OPERATORS = {"PodMonitor", "PrometheusRule"}
"""Kinds of the Prometheus operator's: no part of Kubernetes' schemas, and looked at in a file of their own."""

ALL_KINDS = {
    "ConfigMap",
    "Deployment",
    "Namespace",
    "NetworkPolicy",
    "PersistentVolumeClaim",
    "Service",
    "ServiceAccount",
    *OPERATORS,
}


def container() -> dict[str, Any]:
    """Return the one container of the server's pod."""
    (found,) = only("Deployment")["spec"]["template"]["spec"]["containers"]
    return dict(found)


def environment() -> dict[str, str]:
    """Return its environment."""
    return {variable["name"]: variable["value"] for variable in container()["env"]}


def test_the_overlay_has_every_kind_and_one_namespace() -> None:
    documents = built()
    assert {document["kind"] for document in documents} == ALL_KINDS
    namespaces = {document["metadata"].get("namespace") for document in documents if document["kind"] != "Namespace"}
    assert namespaces == {only("Namespace")["metadata"]["name"]}


@pytest.mark.parametrize("release", RELEASES)
def test_all_objects_are_valid(release: str) -> None:
    validator = pytest.importorskip("kubernetes_validate", reason="needs the package kubernetes-validate")
    checked = 0
    for document in built():
        if document["kind"] not in OPERATORS:
            # Strict: a field that the schema doesn't know is an error, too.
            validator.validate(document, release, strict=True)
            checked += 1
    assert checked >= len(ALL_KINDS - OPERATORS)


@pytest.mark.parametrize("release", RELEASES)
def test_the_schemas_refuse_a_field_in_the_wrong_place(release: str) -> None:
    validator = pytest.importorskip("kubernetes_validate", reason="needs the package kubernetes-validate")
    broken = only("Deployment")
    broken["spec"]["template"]["spec"]["readOnlyRootFilesystem"] = True
    with pytest.raises(validator.ValidationError):
        validator.validate(broken, release, strict=True)


def test_the_pod_is_what_the_restricted_profile_asks_for_and_more() -> None:
    pod = only("Deployment")["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container()["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    assert not {"hostIPC", "hostNetwork", "hostPID"} & set(pod)
    assert not [volume for volume in pod["volumes"] if "hostPath" in volume]
    enforced = only("Namespace")["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
    assert enforced == "restricted"


def test_what_the_server_writes_is_a_volume() -> None:
    mounted = {mount["mountPath"] for mount in container()["volumeMounts"]}
    assert mounted == {"/models", "/var/lib/sglang", "/tmp", "/dev/shm"}  # noqa: S108 - paths in a container


def test_the_patches_took_effect() -> None:
    assert container()["image"].startswith("registry.example.com/")
    assert PINNED.fullmatch(container()["image"])
    assert "--tensor-parallel-size=4" in container()["args"]
    resources = container()["resources"]
    assert resources["requests"]["nvidia.com/gpu"] == resources["limits"]["nvidia.com/gpu"] == 4
    assert {"cpu", "memory"} <= set(resources["requests"])
    assert "memory" in resources["limits"]
    # A patch of a list by name adds to it: what the base says stays.
    assert environment()["HF_HUB_OFFLINE"] == "1"
    assert "SGLANG_FENCE_TRACE_RATIO" in environment()


def test_the_server_shows_metrics_and_the_plugin_can_use_its_switches() -> None:
    assert "--enable-metrics" in container()["args"]
    own = {name: value for name, value in environment().items() if name.startswith("SGLANG_FENCE")}
    assert own
    assert not problems(own)


def test_probes_are_patient() -> None:
    ports = {port["name"] for port in container()["ports"]}
    for name in ("startupProbe", "readinessProbe", "livenessProbe"):
        probe = container()[name]
        assert probe["httpGet"]["port"] in ports
        assert probe["httpGet"]["path"] == "/health"
        # SGLang gives its own answer 20 seconds.
        assert probe["timeoutSeconds"] > 20
    assert container()["startupProbe"]["failureThreshold"] * container()["startupProbe"]["periodSeconds"] >= 1800


def test_every_selector_finds_the_server() -> None:
    labels = only("Deployment")["spec"]["template"]["metadata"]["labels"].items()
    selectors = [
        only("Deployment")["spec"]["selector"]["matchLabels"],
        only("Service")["spec"]["selector"],
        only("NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
        only("PodMonitor")["spec"]["selector"]["matchLabels"],
    ]
    for selector in selectors:
        assert "app.kubernetes.io/name" in selector
        assert selector.items() <= labels


def test_few_may_come_in_and_nothing_but_names_and_traces_goes_out() -> None:
    policy = only("NetworkPolicy")["spec"]
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
    assert all(rule.get("from") and rule["ports"] == [{"port": "http"}] for rule in policy["ingress"])
    peers = [peer["podSelector"]["matchLabels"] for rule in policy["ingress"] for peer in rule["from"]]
    assert {"sglang-fence/client": "true"} in peers
    assert {"app.kubernetes.io/name": "prometheus"} in peers
    assert all(rule.get("to") for rule in policy["egress"])
    assert {port["port"] for rule in policy["egress"] for port in rule["ports"]} == {53, 4318}
