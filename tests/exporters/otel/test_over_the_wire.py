"""Spans reach a real receiver, over gRPC and HTTP, as the catalogue has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import sglang_fence
from sglang_fence import catalogue
from sglang_fence.catalogue.spans import SCHEMA_URL, SCOPE
from sglang_fence.contract import FallbackReason, FenceKind, SharedReadEnds
from tests.exporters.otel.receivers import Receiver, values
from tests.exporters.otel.traces import REQUEST, SPANS_BELOW, decode_step

if TYPE_CHECKING:
    from opentelemetry.proto.trace.v1.trace_pb2 import Span

    from tests.exporters.otel.conftest import Make


def steps_of(spans: list[Span]) -> dict[int, Span]:
    return {int(values(span.attributes)["sglang_fence.step_id"]): span for span in spans if span.name == "step"}


def test_a_step_and_all_below_it_arrive_with_their_names_times_and_parents(receiver: Receiver, make_otel: Make) -> None:
    exporter = make_otel(receiver.url)
    trace = decode_step(5)
    exporter.step_traced(trace)
    exporter.run_ended()
    assert exporter.dropped_steps == 0
    step = steps_of(receiver.spans)[5]
    assert (step.start_time_unix_nano, step.end_time_unix_nano) == (trace.start_ns, trace.end_ns)
    assert not step.parent_span_id
    assert not step.HasField("status") or step.status.code == 0
    below = [span for span in receiver.spans if span.name != "step"]
    assert len(below) == SPANS_BELOW
    assert [(s.name, s.start_time_unix_nano, s.end_time_unix_nano) for s in below] == [
        (times.name, times.start_ns, times.end_ns) for times in trace.spans
    ]
    assert {span.parent_span_id for span in below} == {step.span_id}
    assert {span.trace_id for span in receiver.spans} == {step.trace_id}
    assert len({span.span_id for span in receiver.spans}) == len(receiver.spans)


def test_each_span_carries_what_the_catalogue_allows_it_and_durations_in_seconds(
    receiver: Receiver,
    make_otel: Make,
) -> None:
    exporter = make_otel(receiver.url)
    exporter.step_traced(decode_step(5))
    exporter.run_ended()
    found = {span.name: values(span.attributes) for span in receiver.spans}
    for name, attributes in found.items():
        assert set(attributes) <= {row.name for row in catalogue.span(name).attributes}
    assert found["step"] == {
        "sglang_fence.step_id": 5,
        "sglang_fence.track": "step",
        "sglang_fence.mode": "decode",
        "sglang_fence.backend": "Paged",
        "sglang_fence.batch_size": 4,
        "sglang_fence.tokens": 4,
        "sglang_fence.ends.declared": "in_replay",
        "sglang_fence.ends.resolved": "in_replay",
        "sglang_fence.fence": "fine",
        "sglang_fence.slack": 240e-6,
        "sglang_fence.wait": 10e-6,
        "sglang_fence.forward": 280e-6,
        "sglang_fence.forward_gap": 7e-6,
        "sglang_fence.forward_gap_last": "host",
        "sglang_fence.waited_for": 4,
        "sglang_fence.clock_error": 1.5e-6,
    }
    assert found["publish"] == {
        "sglang_fence.step_id": 5,
        "sglang_fence.track": "host",
        "sglang_fence.runner": "target",
        "sglang_fence.ends.declared": "in_replay",
        "sglang_fence.ends.resolved": "in_replay",
        "sglang_fence.in_graph": True,
    }
    assert found["barrier_wait"] == {
        "sglang_fence.step_id": 5,
        "sglang_fence.track": "schedule",
        "sglang_fence.fence": "fine",
        "sglang_fence.bound_record": 17,
        "sglang_fence.slack": 240e-6,
        "sglang_fence.wait": 10e-6,
    }
    assert found["schedule"] == {"sglang_fence.step_id": 5, "sglang_fence.track": "host"}


def test_a_coarse_step_says_why_and_is_no_error(receiver: Receiver, make_otel: Make) -> None:
    exporter = make_otel(receiver.url)
    exporter.step_traced(
        decode_step(
            0,
            resolved=SharedReadEnds.UNKNOWN,
            fence=FenceKind.COARSE,
            reason=FallbackReason.BACKEND_UNKNOWN,
            bound_record=None,
            lost_slack_us=100.0,
            assumed=True,
            lost_us=20.0,
        ),
    )
    exporter.run_ended()
    step = steps_of(receiver.spans)[0]
    said = values(step.attributes)
    assert said["sglang_fence.reason"] == "backend_unknown"
    assert (said["sglang_fence.lost_slack"], said["sglang_fence.lost"]) == (100e-6, 20e-6)
    assert said["sglang_fence.assumed"] is True
    assert "sglang_fence.waited_for" not in said
    assert step.status.code == 0


def test_a_step_is_linked_to_the_fence_it_waited_for_and_to_its_requests(receiver: Receiver, make_otel: Make) -> None:
    exporter = make_otel(receiver.url)
    exporter.step_traced(decode_step(1))  # waited for step 0, which wasn't sampled
    exporter.step_traced(decode_step(2, links=(REQUEST, "not a traceparent")))
    exporter.run_ended()
    first, second = steps_of(receiver.spans)[1], steps_of(receiver.spans)[2]
    assert not first.links
    request, fence = second.links
    assert (request.trace_id.hex(), request.span_id.hex()) == (REQUEST[3:35], REQUEST[36:52])
    assert values(request.attributes) == {"sglang_fence.link": "request"}
    assert (fence.trace_id, fence.span_id) == (first.trace_id, first.span_id)
    assert values(fence.attributes) == {"sglang_fence.link": "fence"}
    assert exporter.malformed_links == 1


def test_the_link_to_the_fence_survives_more_requests_than_the_sdk_links(receiver: Receiver, make_otel: Make) -> None:
    exporter = make_otel(receiver.url)
    exporter.step_traced(decode_step(0))
    exporter.step_traced(decode_step(1, links=(REQUEST,) * 200))
    exporter.run_ended()
    step = steps_of(receiver.spans)[1]
    assert len(step.links) == 128
    assert step.dropped_links_count == 201 - 128
    assert values(step.links[-1].attributes) == {"sglang_fence.link": "fence"}


def test_scope_and_resource_say_who_sent_it(receiver: Receiver, make_otel: Make) -> None:
    exporter = make_otel(receiver.url)
    exporter.step_traced(decode_step(0))
    exporter.run_ended()
    (resource,) = receiver.received[0].request.resource_spans
    (scope,) = resource.scope_spans
    assert (scope.scope.name, scope.scope.version, scope.schema_url) == (SCOPE, sglang_fence.__version__, SCHEMA_URL)
    assert values(resource.resource.attributes)["service.name"] == "sglang-fence"


@pytest.mark.parametrize(
    ("name", "value"),
    [("OTEL_SERVICE_NAME", "mine"), ("OTEL_RESOURCE_ATTRIBUTES", "service.name=mine,service.instance.id=seven")],
)
def test_the_environment_outranks_our_name(
    receiver: Receiver,
    make_otel: Make,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
) -> None:
    monkeypatch.setenv(name, value)
    exporter = make_otel(receiver.url, virtual_time=True)
    exporter.step_traced(decode_step(0))
    exporter.run_ended()
    said = values(receiver.received[0].request.resource_spans[0].resource.attributes)
    assert said["service.name"] == "mine"
    assert said["service.instance.id"] == ("seven" if "seven" in value else "virtual-time")


def test_address_and_headers_come_from_the_standard_variables(
    receiver: Receiver,
    make_otel: Make,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url.replace("grpc://", "http://"))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", receiver.protocol)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=blue")
    exporter = make_otel(None)
    exporter.step_traced(decode_step(0))
    exporter.run_ended()
    assert len(receiver.spans) == 1 + SPANS_BELOW
    assert receiver.received[0].headers["x-tenant"] == "blue"
    assert receiver.received[0].path in {"", "/v1/traces"}


def test_many_steps_arrive_all_of_them_in_order_and_in_batches(receiver: Receiver, make_otel: Make) -> None:
    exporter = make_otel(receiver.url)
    for step in range(300):  # more spans than the batch processor's queue takes
        exporter.step_traced(decode_step(step))
    exporter.run_ended()
    assert list(steps_of(receiver.spans)) == list(range(300))
    assert len(receiver.spans) == 300 * (1 + SPANS_BELOW)
    assert len(receiver.received) > 1
    assert exporter.dropped_steps == 0
    assert all(len(step.links) == 1 for step in list(steps_of(receiver.spans).values())[1:])


def test_two_runs_in_virtual_time_send_the_same_bytes(receiver: Receiver, make_otel: Make) -> None:
    sent: list[list[bytes]] = []
    for _ in range(2):
        before = len(receiver.spans)
        exporter = make_otel(receiver.url, virtual_time=True)
        for step in range(5):
            exporter.step_traced(decode_step(step, links=(REQUEST,)))
        exporter.run_ended()
        sent.append([span.SerializeToString(deterministic=True) for span in receiver.spans[before:]])
    assert sent[0] == sent[1]
    assert len(set(sent[0])) == 5 * (1 + SPANS_BELOW)
    assert len({span.trace_id for span in receiver.spans}) == 5
    first, second = receiver.received[0].request, receiver.received[-1].request
    assert first.resource_spans[0].resource == second.resource_spans[0].resource


def test_in_real_time_identifiers_are_random(receiver: Receiver, make_otel: Make) -> None:
    for _ in range(2):
        exporter = make_otel(receiver.url)
        exporter.step_traced(decode_step(0))
        exporter.run_ended()
    assert len({span.trace_id for span in receiver.spans}) == 2
