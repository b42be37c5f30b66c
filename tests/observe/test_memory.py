"""Memory is flat, however many steps there are, while an exporter takes nothing."""

from __future__ import annotations

import gc
import socket
import tracemalloc
from typing import TYPE_CHECKING

import pytest

from sglang_fence.bench.overlap import OverlapLoop, StepShape
from sglang_fence.bench.spinning import simulated
from sglang_fence.observe.exporting import ExportContext, make_exporter
from sglang_fence.observe.sampling import Sampling
from sglang_fence.observe.summary import SAMPLES, Summary
from sglang_fence_exporters.otel import OpenTelemetryExporter

if TYPE_CHECKING:
    from collections.abc import Generator

STEPS, WARM_UP = 100_000, 20_000
TRACED = 0.2
LEAST_LEAK_BYTES = 16
"""A list that grows by a number a step grows faster."""


@pytest.fixture
def deaf_collector(monkeypatch: pytest.MonkeyPatch) -> Generator[str]:
    """Return the address of a collector that lets connections come in and never answers."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "600")
    monkeypatch.setenv("OTEL_BSP_EXPORT_TIMEOUT", "200")
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        yield f"http://127.0.0.1:{deaf.getsockname()[1]}"


@pytest.fixture
def _traced() -> Generator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("_traced")
def test_a_hundred_thousand_steps_leave_nothing_behind(deaf_collector: str) -> None:
    shape, summary = StepShape(), Summary()
    device, spinner = simulated(shape)
    exporter = make_exporter("otel", ExportContext(ledger=summary, otlp=deaf_collector))
    assert isinstance(exporter, OpenTelemetryExporter)
    sampling = Sampling(timing_every=1, trace_ratio=TRACED, trace_coarse=True)
    loop = OverlapLoop(device, spinner, shape, "fine", [summary, exporter], sampling)
    assert WARM_UP > SAMPLES
    loop.run(WARM_UP)
    while not exporter.dropped_steps:  # its queues are full, too, before anything is measured
        loop.run(WARM_UP // 10)
    gc.collect()
    before, dropped = tracemalloc.get_traced_memory()[0], exporter.dropped_steps
    loop.run(STEPS)
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    assert grown < LEAST_LEAK_BYTES * STEPS
    assert summary.total().steps == loop.steps
    assert exporter.dropped_steps - dropped > 0.9 * TRACED * STEPS  # it was slower than the run
    assert not loop.probe.unresolved
    loop.probe.close()
