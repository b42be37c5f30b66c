"""What observing costs is measured over loops that really observe, and whose traces really arrive."""

from __future__ import annotations

from pathlib import Path

from sglang_fence.bench import observing
from sglang_fence.bench.overlap import StepShape
from sglang_fence.bench.spinning import simulated
from tests.exporters.otel.processes import child_processes
from tests.exporters.otel.receivers import HttpReceiver

STEPS, ROUNDS = 200, 1
TRACED = "every step timed, NVTX, 1 % traced"


def senders() -> list[int]:
    """Return the processes of ours that send traces."""
    return [pid for pid in child_processes() if b"otel_sender" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_the_loop_with_traces_sends_them_from_a_process_that_ends_with_the_measuring() -> None:
    device, _ = simulated(StepShape())
    with HttpReceiver() as receiver:
        with observing.blocks(device, otlp=receiver.url, steps=STEPS) as loops:
            assert TRACED in loops
            compared = observing.compare(loops, rounds=ROUNDS)
            assert len(senders()) == 1
        assert not senders()
        traced = sum(span.name == "step" for span in receiver.spans)
    assert {len(variant.blocks) for variant in compared.values()} == {ROUNDS}
    assert traced > 0  # which steps are, is drawn, but the same each time


def test_without_a_collector_nothing_is_traced() -> None:
    device, _ = simulated(StepShape())
    with observing.blocks(device, otlp=None, steps=STEPS) as loops:
        assert TRACED not in loops
        assert not senders()
