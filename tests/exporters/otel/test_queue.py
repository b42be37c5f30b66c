"""The serving thread only appends, to a queue with an end; what has no room is turned away and counted."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from opentelemetry.sdk.trace import TracerProvider

from sglang_fence.observe.ledger import Ledger
from sglang_fence.observe.observer import Observer, Observers
from sglang_fence_exporters.otel import QUEUE_STEPS, OpenTelemetryExporter
from sglang_fence_exporters.otel_delivery import ProcessDelivery
from sglang_fence_exporters.otel_in_process import InProcess
from sglang_fence_exporters.otel_spans import SpanBuilder
from tests.exporters.otel.traces import decode_step

if TYPE_CHECKING:
    from sglang_fence.observe.trace import StepTrace

DEADLINE_S = 30.0


class Gated(SpanBuilder):
    """Builds nothing until it is let."""

    def __init__(self, delivery: ProcessDelivery) -> None:
        super().__init__(delivery.tracer)
        self.started = threading.Event()
        self.gate = threading.Event()
        self.threads: set[int] = set()

    def build(self, trace: StepTrace) -> str | None:
        self.threads.add(threading.get_ident())
        self.started.set()
        self.gate.wait()
        return super().build(trace)


def gated(end_timeout: float) -> tuple[OpenTelemetryExporter, Gated]:
    delivery = ProcessDelivery(TracerProvider(shutdown_on_exit=False))
    builder = Gated(delivery)
    return OpenTelemetryExporter(Ledger(), InProcess(builder, delivery), end_timeout), builder


def test_a_full_queue_turns_steps_away_and_counts_them() -> None:
    exporter, builder = gated(DEADLINE_S)
    exporter.step_traced(decode_step(0))
    assert builder.started.wait(DEADLINE_S)  # it is out of the queue now, and stuck
    for step in range(1, QUEUE_STEPS + 8):
        exporter.step_traced(decode_step(step, spans=()))
    assert exporter.dropped_steps == 7
    assert len(exporter._queue) == QUEUE_STEPS
    builder.gate.set()
    exporter.run_ended()
    assert exporter.dropped_steps == 7
    assert exporter._route.settled == QUEUE_STEPS + 1


def test_what_still_waits_when_the_end_is_over_is_counted_too() -> None:
    exporter, builder = gated(0.2)
    for step in range(5):
        exporter.step_traced(decode_step(step))
    assert builder.started.wait(DEADLINE_S)
    exporter.run_ended()
    assert exporter.dropped_steps == 5
    exporter.step_traced(decode_step(6))
    assert exporter.dropped_steps == 6
    builder.gate.set()


def test_spans_are_built_on_one_thread_that_is_not_the_serving_one() -> None:
    exporter, builder = gated(DEADLINE_S)
    builder.gate.set()
    for step in range(3):
        exporter.step_traced(decode_step(step))
    exporter.run_ended()
    assert len(builder.threads) == 1
    assert threading.get_ident() not in builder.threads
    assert not exporter._thread.is_alive()
    assert exporter._thread.daemon


def test_no_hook_is_called_but_those_it_needs() -> None:
    overridden = {name for name in vars(OpenTelemetryExporter) if name in vars(Observer)} - {"__doc__", "__module__"}
    overridden = {name for name in overridden if not name.startswith("__")}
    assert overridden == {"step_traced", "run_ended", "dropped_steps"}
    exporter, builder = gated(DEADLINE_S)
    builder.gate.set()
    observers = Observers([exporter])
    assert (len(observers.step_traced), len(observers.run_ended)) == (1, 1)
    assert not any(
        (observers.step_finished, observers.step_started, observers.range_started, observers.barrier_applied)
    )
    exporter.run_ended()
