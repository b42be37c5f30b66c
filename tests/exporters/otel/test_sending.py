"""A batch is sent whole and counted by its steps, and whatever an exporter raises is a count and a line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from sglang_fence_exporters.otel_sending import SendingExporter
from sglang_fence_exporters.otel_spans import SpanBuilder
from tests.exporters.otel.traces import SPANS_BELOW, decode_step

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

STEPS = 20


@pytest.fixture
def batch() -> Sequence[ReadableSpan]:
    """Return the spans of twenty steps."""
    provider = TracerProvider(shutdown_on_exit=False)
    built = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(built))
    builder = SpanBuilder(provider.get_tracer("test"))
    for step in range(STEPS):
        builder.build(decode_step(step))
    return built.get_finished_spans()


class Broken(SpanExporter):
    """Raises what no exporter should."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        msg = f"{len(spans)} spans\nare too many"
        raise RuntimeError(msg)


@pytest.fixture
def sending(batch: Sequence[ReadableSpan]) -> Iterator[tuple[SendingExporter, InMemorySpanExporter]]:
    """Return an exporter that keeps what it sends."""
    kept = InMemorySpanExporter()
    exporter = SendingExporter(kept, "memory")
    assert len(batch) == STEPS * (1 + SPANS_BELOW)
    yield exporter, kept
    exporter.restore_logging()


def test_a_batch_is_sent_whole_and_its_steps_are_counted(
    sending: tuple[SendingExporter, InMemorySpanExporter],
    batch: Sequence[ReadableSpan],
) -> None:
    exporter, kept = sending
    assert exporter.export(batch) is SpanExportResult.SUCCESS
    assert kept.get_finished_spans() == batch
    assert (exporter.taken_spans, exporter.sent_steps, exporter.failed_steps) == (len(batch), STEPS, 0)


def test_an_exporter_that_raises_is_counted_and_said_once(
    batch: Sequence[ReadableSpan],
    caplog: pytest.LogCaptureFixture,
) -> None:
    exporter = SendingExporter(Broken(), "nowhere")
    assert [exporter.export(batch) for _ in range(3)] == [SpanExportResult.FAILURE] * 3
    exporter.restore_logging()
    assert (exporter.sent_steps, exporter.failed_steps) == (0, 3 * STEPS)
    (record,) = caplog.records
    assert record.getMessage() == (
        f"spans can't be sent to nowhere ({len(batch)} spans are too many): "
        "serving goes on, and steps that are lost are counted"
    )
