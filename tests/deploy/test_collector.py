"""The collector's configuration. No package has its binary: its structure is compared with what is documented.

What the policies keep is tried on the spans of a real run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from sglang_fence.catalogue.spans import SCOPE, SPANS
from tests.deploy.layout import DEPLOY, load
from tests.deploy.mounted import services
from tests.deploy.sampling import COLLECTOR, keeping, policies, traces
from tests.exporters.otel.receivers import HttpReceiver, values

if TYPE_CHECKING:
    from opentelemetry.proto.trace.v1.trace_pb2 import Span

# As documented: what each component that is used may be told.
COMPONENTS: dict[str, dict[str, set[str]]] = {
    "extensions": {"health_check": {"endpoint", "path", "tls"}},
    "receivers": {"otlp": {"protocols"}},
    "processors": {
        "memory_limiter": {
            "check_interval",
            "limit_mib",
            "spike_limit_mib",
            "limit_percentage",
            "spike_limit_percentage",
        },
        "tail_sampling": {
            "decision_wait",
            "num_traces",
            "expected_new_traces_per_sec",
            "decision_cache",
            "sample_on_first_match",
            "policies",
        },
        "batch": {"timeout", "send_batch_size", "send_batch_max_size", "metadata_keys"},
    },
    "exporters": {
        "otlp": {"endpoint", "tls", "headers", "compression", "timeout", "sending_queue", "retry_on_failure"},
    },
}
POLICIES: dict[str, set[str]] = {
    "string_attribute": {"key", "values", "enabled_regex_matching", "cache_max_size", "invert_match"},
    "ottl_condition": {"error_mode", "span", "spanevent"},
    "probabilistic": {"hash_salt", "sampling_percentage"},
}

ATTRIBUTES = {attribute.name: attribute for span in SPANS for attribute in span.attributes}


@pytest.fixture
def configuration() -> dict[str, Any]:
    found: dict[str, Any] = load(COLLECTOR)
    return found


def seconds(duration: str) -> int:
    found = re.fullmatch(r"(\d+)s", duration)
    assert found is not None, duration
    return int(found[1])


def test_every_component_is_known_told_what_it_knows_and_used(configuration: dict[str, Any]) -> None:
    assert set(configuration) == {*COMPONENTS, "service"}
    for section, known in COMPONENTS.items():
        assert set(configuration[section]) <= set(known)
        for name, settings in configuration[section].items():
            assert set(settings) <= known[name], name
    service = configuration["service"]
    assert set(service) <= {"extensions", "pipelines", "telemetry"}
    assert set(service["extensions"]) == set(configuration["extensions"])
    (pipeline,) = service["pipelines"].values()
    for section in ("receivers", "processors", "exporters"):
        assert set(pipeline[section]) == set(configuration[section])


def test_memory_is_guarded_first_and_batches_are_made_last(configuration: dict[str, Any]) -> None:
    assert configuration["service"]["pipelines"]["traces"]["processors"] == ["memory_limiter", "tail_sampling", "batch"]
    # Without a limit of its own the collector would take a share of the machine's memory.
    assert services()["otel-collector"]["mem_limit"]


def test_policies_are_known_and_told_what_they_know() -> None:
    names = [policy["name"] for policy in policies()]
    assert len(set(names)) == len(names)
    for policy in policies():
        assert set(policy) == {"name", "type", policy["type"]}
        assert set(policy[policy["type"]]) <= POLICIES[policy["type"]]


def test_policies_ask_for_attributes_and_values_of_the_catalogue() -> None:
    asked = [policy["string_attribute"] for policy in policies() if policy["type"] == "string_attribute"]
    assert {one["key"] for one in asked} >= {"sglang_fence.fence"}
    for one in asked:
        assert set(one["values"]) <= set(ATTRIBUTES[one["key"]].values or ()), one["key"]
    # Asked of the span that no trace lacks.
    step = {attribute.name for span in SPANS if span.name == "step" for attribute in span.attributes}
    assert {one["key"] for one in asked} <= step


def test_what_is_not_ours_is_kept() -> None:
    (conditions,) = (policy["ottl_condition"] for policy in policies() if policy["type"] == "ottl_condition")
    assert conditions["span"] == [f'instrumentation_scope.name != "{SCOPE}"']


def test_it_decides_when_all_spans_of_a_step_have_come(configuration: dict[str, Any]) -> None:
    # OTEL_BSP_SCHEDULE_DELAY is 5 s: a step's spans may come in two batches, that far apart, and a retry later.
    assert seconds(configuration["processors"]["tail_sampling"]["decision_wait"]) >= 10


def test_addresses_are_of_services_and_ports_that_listen(configuration: dict[str, Any]) -> None:
    protocols = configuration["receivers"]["otlp"]["protocols"]
    assert {name: told["endpoint"] for name, told in protocols.items()} == {
        "grpc": "0.0.0.0:4317",
        "http": "0.0.0.0:4318",
    }
    assert services()["sglang"]["environment"]["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://otel-collector:4318"
    host, port = configuration["exporters"]["otlp"]["endpoint"].split(":")
    assert host in services()
    tempo = load(DEPLOY / "tempo" / "tempo.yml")
    assert tempo["distributor"]["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"].endswith(f":{port}")


def is_coarse(trace: list[Span]) -> bool:
    (step,) = (span for span in trace if span.name == "step")
    return values(step.attributes)["sglang_fence.fence"] == "coarse"


def test_of_a_real_run_every_coarse_step_is_kept_and_no_fine_one_is_for_sure() -> None:
    # Told where to send as the compose file tells a server.
    with HttpReceiver() as receiver:
        command = ["run", "--device=simulated", "--requests=4", "--max-new-tokens=8", "--trace-ratio=1", "--otlp=env"]
        done = subprocess.run(
            [sys.executable, "-m", "sglang_fence", *command],
            env={**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found = traces(receiver.spans)
    coarse = [trace for trace in found if is_coarse(trace)]
    fine = [trace for trace in found if not is_coarse(trace)]
    assert coarse
    assert fine
    assert all("coarse-steps" in keeping(trace) for trace in coarse)
    assert not [trace for trace in fine if keeping(trace)]
