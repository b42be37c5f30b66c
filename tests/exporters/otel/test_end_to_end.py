"""``sglang-fence run --otlp``: the spans of a run on the simulated device reach a receiver."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from typing import TYPE_CHECKING

import pytest

from sglang_fence import catalogue
from sglang_fence.observe.trace import VIRTUAL_EPOCH_NS
from tests.exporters.otel.receivers import Receiver, values

if TYPE_CHECKING:
    from opentelemetry.proto.trace.v1.trace_pb2 import Span

RUN = [sys.executable, "-m", "sglang_fence", "run", "--device", "simulated"]
SMALL = ["--requests", "4", "--max-new-tokens", "16"]


@cache
def has_option() -> bool:
    wide = {**os.environ, "COLUMNS": "200"}
    done = subprocess.run([*RUN[:4], "--help"], capture_output=True, text=True, timeout=120, check=True, env=wide)
    return "--otlp" in done.stdout and "--trace-ratio" in done.stdout


def serve(url: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*RUN, *SMALL, "--otlp", url, "--trace-ratio", "1"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture(autouse=True)
def option() -> None:
    if not has_option():
        pytest.skip("`run` has no --otlp yet")


def test_a_run_is_traced_step_by_step_and_the_same_each_time(receiver: Receiver) -> None:
    runs: list[list[bytes]] = []
    for _ in range(2):
        before = len(receiver.spans)
        done = serve(receiver.url)
        assert done.returncode == 0, done.stderr
        runs.append([span.SerializeToString(deterministic=True) for span in receiver.spans[before:]])
    spans = receiver.spans[: len(runs[0])]
    assert runs[0] == runs[1]
    steps = {span.span_id: span for span in spans if span.name == "step"}
    assert len(steps) >= 16
    for span in spans:
        check(span, steps)
    numbers = [values(span.attributes)["sglang_fence.step_id"] for span in steps.values()]
    assert len(set(numbers)) == len(numbers)
    assert any(values(link.attributes) == {"sglang_fence.link": "fence"} for s in steps.values() for link in s.links)


def check(span: Span, steps: dict[bytes, Span]) -> None:
    assert VIRTUAL_EPOCH_NS <= span.start_time_unix_nano <= span.end_time_unix_nano
    assert set(values(span.attributes)) <= {row.name for row in catalogue.span(span.name).attributes}
    if span.name != "step":
        step = steps[span.parent_span_id]
        assert values(step.attributes)["sglang_fence.step_id"] == values(span.attributes)["sglang_fence.step_id"]
        assert span.end_time_unix_nano <= step.end_time_unix_nano


def test_a_receiver_that_is_down_changes_neither_tokens_nor_the_end() -> None:
    plain = subprocess.run([*RUN, *SMALL], capture_output=True, text=True, timeout=300, check=True)
    down = serve("http://127.0.0.1:1")
    assert down.returncode == 0, down.stderr
    assert "Traceback" not in down.stderr
    assert "spans can't be sent to http://127.0.0.1:1" in down.stderr
    outputs = [line for line in plain.stdout.splitlines() if line.startswith("{")]
    assert outputs == [line for line in down.stdout.splitlines() if line.startswith("{")]


@pytest.mark.parametrize("url", ["localhost:4317", "http://:1", "ftp://host:1"])
def test_a_bad_address_ends_before_a_model_is_loaded(url: str) -> None:
    done = serve(url)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert "--otlp" in done.stderr
