"""Any step becomes spans that keep to the catalogue; what can't be built is counted, and the next one is."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import given
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import StatusCode

from sglang_fence import catalogue
from sglang_fence.catalogue import SPANS, Attribute, Track
from sglang_fence.catalogue.spans import LINK
from sglang_fence.contract import FallbackReason, ForwardMode, SharedReadEnds
from sglang_fence.observe.ledger import Ledger
from sglang_fence.observe.record import Phase, StepRecord
from sglang_fence.observe.trace import SpanTimes, StepTrace
from sglang_fence_exporters import otel_attributes
from sglang_fence_exporters.otel import OpenTelemetryExporter
from sglang_fence_exporters.otel_delivery import ProcessDelivery
from sglang_fence_exporters.otel_ids import StepIds
from sglang_fence_exporters.otel_in_process import InProcess
from sglang_fence_exporters.otel_spans import RECENT_STEPS, SpanBuilder, parse_traceparent
from tests.exporters.otel.traces import REQUEST, decode_step, step_traces

if TYPE_CHECKING:
    from opentelemetry.util.types import Attributes


class Bench(NamedTuple):
    """A builder, and what it built."""

    builder: SpanBuilder
    built: InMemorySpanExporter
    provider: TracerProvider


def bench(provider: TracerProvider | None = None) -> Bench:
    provider = provider or TracerProvider(shutdown_on_exit=False)
    built = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(built))
    return Bench(SpanBuilder(provider.get_tracer("test")), built, provider)


def check(name: str, attributes: Attributes) -> None:
    allowed: dict[str, Attribute] = {row.name: row for row in catalogue.span(name).attributes}
    assert attributes is not None
    for key, value in attributes.items():
        row = allowed[key]
        assert type(value) is row.type, key
        assert row.values is None or value in row.values, key


@given(step_traces())
def test_any_step_gives_spans_whose_parents_exist_with_its_times_and_the_catalogues_attributes(
    trace: StepTrace,
) -> None:
    builder, built, _ = bench()
    trace_id = builder.build(trace)
    *below, step = built.get_finished_spans()
    assert step.name == "step"
    assert step.parent is None
    assert step.context is not None
    assert trace_id == f"{step.context.trace_id:032x}"
    assert (step.start_time, step.end_time) == (trace.start_ns, trace.end_ns)
    got = [(span.name, span.start_time, span.end_time, (span.attributes or {})["sglang_fence.track"]) for span in below]
    assert got == [(times.name, times.start_ns, times.end_ns, times.track.value) for times in trace.spans]
    for span in (*below, step):
        check(span.name, span.attributes)
        assert (span.attributes or {})["sglang_fence.step_id"] == trace.step
        assert span.status.status_code is StatusCode.UNSET
    assert all(span.parent == step.context for span in below)
    assert len(step.links) + builder.malformed_links == len(trace.links)


def test_every_attribute_of_the_catalogue_has_a_source_and_appears_on_some_step() -> None:
    builder, built, _ = bench()
    full = decode_step(1)._replace(
        downgrade="no_marker",
        reason=FallbackReason.FORCED,
        lost_slack_us=1.0,
        lost_us=1.0,
        links=(REQUEST,),
        phases=(
            Phase(ForwardMode.DECODE, "draft", "Other", SharedReadEnds.IN_REPLAY, SharedReadEnds.POST_REPLAY, "x"),
        ),
        spans=tuple(
            SpanTimes(row.name, row.track, 1, 2, phase=0, segment=3) for row in SPANS if row.track is not Track.STEP
        ),
    )
    builder.build(full)
    for span in built.get_finished_spans():
        named = {row.name for row in catalogue.span(span.name).attributes} - {LINK.name}
        assert set(span.attributes or {}) == named


def test_a_span_of_a_phase_speaks_of_that_phase() -> None:
    builder, built, _ = bench()
    draft = Phase(ForwardMode.DECODE, "draft", "Small", SharedReadEnds.PRE_REPLAY, SharedReadEnds.PRE_REPLAY, None)
    verify = Phase(ForwardMode.TARGET_VERIFY, "target", "Big", SharedReadEnds.UNKNOWN, SharedReadEnds.UNKNOWN, None)
    builder.build(
        decode_step(
            3,
            phases=(draft, verify),
            spans=(
                SpanTimes("draft", Track.FORWARD, 1, 2, 0),
                SpanTimes("target_verify", Track.FORWARD, 2, 3, 1),
                SpanTimes("publish", Track.HOST, 2, 3, 0),
                SpanTimes("publish", Track.HOST, 3, 4, 1),
                SpanTimes("replay", Track.FORWARD, 3, 4),
            ),
        ),
    )
    first, second, snapshot, unknown, nobodys, _ = (dict(span.attributes or {}) for span in built.get_finished_spans())
    assert (first["sglang_fence.backend"], first["sglang_fence.runner"]) == ("Small", "draft")
    assert (second["sglang_fence.mode"], second["sglang_fence.runner"]) == ("target_verify", "target")
    assert snapshot["sglang_fence.in_graph"] is False
    assert "sglang_fence.in_graph" not in unknown
    assert nobodys["sglang_fence.backend"] == "Paged"
    assert "sglang_fence.runner" not in nobodys


def test_spans_take_no_parent_from_the_code_that_runs_around_them() -> None:
    builder, built, provider = bench()
    with provider.get_tracer("other").start_as_current_span("around"):
        builder.build(decode_step(0))
    step = next(span for span in built.get_finished_spans() if span.name == "step")
    assert step.parent is None


def test_only_recent_steps_can_be_linked_to() -> None:
    builder, built, _ = bench()
    bare = decode_step(0, spans=())
    for step in range(RECENT_STEPS + 1):
        builder.build(bare._replace(step=step, waited_for=None))
    built.clear()
    builder.build(bare._replace(step=9000, waited_for=0))
    builder.build(bare._replace(step=9001, waited_for=RECENT_STEPS))
    assert [len(span.links) for span in built.get_finished_spans()] == [0, 1]
    assert len(builder._recent) == RECENT_STEPS


@pytest.mark.parametrize(
    "text",
    ["", "00", REQUEST[:-3], REQUEST.replace("4bf9", "zzzz"), f"00-{'0' * 32}-{'1' * 16}-01", f"ff{REQUEST[2:]}"],
)
def test_a_malformed_traceparent_is_no_link(text: str) -> None:
    assert parse_traceparent(REQUEST) is not None
    assert parse_traceparent(text) is None


def test_identifiers_of_virtual_time_differ_by_step_and_span_and_come_again() -> None:
    ids = StepIds()

    def draw(step: int) -> list[int]:
        ids.begin(step)
        return [ids.generate_trace_id(), *(ids.generate_span_id() for _ in range(20))]

    drawn = {step: draw(step) for step in range(50)}
    every = [one for some in drawn.values() for one in some]
    assert len(set(every)) == len(every)
    assert drawn[7] == draw(7)
    assert all(0 < some[0] < 2**128 and all(0 < one < 2**64 for one in some[1:]) for some in drawn.values())


def finish(ledger: Ledger, trace: StepTrace) -> None:
    """Count the step as the probe would have."""
    record = StepRecord(None)
    record.reset(trace.step, trace.mode, trace.backend, trace.batch_size, trace.tokens)
    record.declared, record.resolved, record.downgrade = trace.declared, trace.resolved, trace.downgrade
    record.fence, record.reason = trace.fence, trace.reason
    record.timed, record.slack_us = True, trace.slack_us
    ledger.step_finished(record)


def export(ledger: Ledger, provider: TracerProvider, *traces: StepTrace) -> OpenTelemetryExporter:
    delivery = ProcessDelivery(provider)
    exporter = OpenTelemetryExporter(ledger, InProcess(SpanBuilder(delivery.tracer), delivery), 5.0)
    for trace in traces:
        exporter.step_traced(trace)
    exporter.run_ended()
    return exporter


def exemplars(ledger: Ledger) -> list[str]:
    return [one.trace_id for cell in ledger.cells.values() for one in cell.slack.exemplars.values()]


def test_the_ledger_is_told_the_trace_of_a_step() -> None:
    _, built, provider = bench()
    ledger, trace = Ledger(), decode_step(0)
    finish(ledger, trace)
    export(ledger, provider, trace)
    spans: tuple[ReadableSpan, ...] = built.get_finished_spans()
    assert spans[-1].context is not None
    assert exemplars(ledger) == [f"{spans[-1].context.trace_id:032x}"]


def test_a_provider_that_says_no_gets_no_spans_and_nothing_counts_as_lost() -> None:
    _, built, provider = bench(TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False))
    ledger, trace = Ledger(), decode_step(0)
    finish(ledger, trace)
    exporter = export(ledger, provider, trace)
    assert built.get_finished_spans() == ()
    assert exemplars(ledger) == []
    assert exporter.dropped_steps == 0


def test_what_cannot_be_built_is_counted_and_logged_once_and_the_next_is_built(
    caplog: pytest.LogCaptureFixture,
) -> None:
    _, built, provider = bench()
    unknown = decode_step(0, spans=(SpanTimes("of_no_catalogue", Track.HOST, 1, 2),))
    no_phase = decode_step(1, phases=())
    exporter = export(Ledger(), provider, unknown, no_phase, decode_step(2, spans=()))
    assert [span.name for span in built.get_finished_spans()] == ["step"]
    assert exporter.dropped_steps == 2
    (record,) = caplog.records
    assert record.getMessage() == "the spans of step 0 can't be built; more such steps are only counted"


def test_every_source_is_of_the_catalogue() -> None:
    known = set(catalogue.ATTRIBUTES)
    for table in (otel_attributes._OF_STEP, otel_attributes._OF_PHASE, otel_attributes._OF_SPAN):
        assert set(table) <= known
