"""A collector that is down, refuses or hangs costs serving nothing, delays the end by a bound, and is counted."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from tests.exporters.otel.receivers import GrpcReceiver, HttpReceiver, Receiver
from tests.exporters.otel.traces import SPANS_BELOW, decode_step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sglang_fence_exporters.otel import OpenTelemetryExporter
    from tests.exporters.otel.conftest import Make

DEADLINE_S = 30.0
"""Far more than the bound that is set, and far less than an export that isn't given up."""


@pytest.fixture(autouse=True)
def long_tries_and_a_short_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "300")
    monkeypatch.setenv("OTEL_BSP_EXPORT_TIMEOUT", "600")


@pytest.fixture
def closed_port() -> Iterator[int]:
    """Return a port that is taken, so that nobody else gets it, but where nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def end(exporter: OpenTelemetryExporter) -> None:
    ending = threading.Thread(target=exporter.run_ended, daemon=True)
    ending.start()
    ending.join(DEADLINE_S)
    assert not ending.is_alive(), "the end of the run hangs on the collector"


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("scheme", ["grpc", "http"])
def test_down_for_the_whole_run_every_step_is_counted_and_one_line_says_so(
    scheme: str,
    closed_port: int,
    make_otel: Make,
    caplog: pytest.LogCaptureFixture,
) -> None:
    exporter = make_otel(f"{scheme}://127.0.0.1:{closed_port}")
    for step in range(7):
        exporter.step_traced(decode_step(step))
    end(exporter)
    assert exporter.dropped_steps == 7
    exporter._thread.join(DEADLINE_S / 2)
    assert not exporter._thread.is_alive(), "what waits for the next try wasn't told that the run is over"
    (line,) = warnings(caplog)
    assert line.startswith(f"spans can't be sent to http://127.0.0.1:{closed_port}")
    assert "\n" not in line


def test_a_collector_that_refuses_is_counted_at_once_and_said_once(
    receiver: Receiver,
    make_otel: Make,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", str(1 + SPANS_BELOW))
    receiver.refusing = True
    exporter = make_otel(receiver.url)
    for step in range(5):
        exporter.step_traced(decode_step(step))
    give_up = time.monotonic() + DEADLINE_S
    while exporter.dropped_steps < 5:  # as soon as it is known, not only at the end
        assert time.monotonic() < give_up
        receiver.asked.wait(0.01)
    end(exporter)
    assert exporter.dropped_steps == 5
    (line,) = warnings(caplog)
    assert "Failed to export" in line
    assert receiver.spans == []


def test_a_collector_that_hangs_loses_what_it_did_not_answer_and_no_more(
    receiver: Receiver,
    make_otel: Make,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", str(1 + SPANS_BELOW))
    exporter = make_otel(receiver.url)
    exporter.step_traced(decode_step(0))
    give_up = time.monotonic() + DEADLINE_S
    while exporter._route.settled == 0:
        assert time.monotonic() < give_up
        receiver.asked.wait(0.01)
    receiver.hang()
    for step in range(1, 500):  # more than the batch processor has room for: these wait in the exporter's queue
        exporter.step_traced(decode_step(step))
    end(exporter)
    assert exporter.dropped_steps == 499
    assert len(warnings(caplog)) == 1
    assert "the run ended before the collector answered" in warnings(caplog)[0]


def test_others_exporters_may_still_log(receiver: Receiver, make_otel: Make, caplog: pytest.LogCaptureFixture) -> None:
    theirs = [
        logging.getLogger("opentelemetry.exporter.otlp.proto.http.trace_exporter"),
        logging.getLogger("opentelemetry.exporter.otlp.proto.grpc.exporter"),
    ]
    before = [list(logger.filters) for logger in theirs]
    exporter = make_otel(receiver.url, virtual_time=True)  # in real time, another process sends, and nothing is hushed
    assert [list(logger.filters) for logger in theirs] != before
    said = [f"another collector than {receiver.url} is down, says {logger.name}" for logger in theirs]
    for logger, text in zip(theirs, said, strict=True):
        logger.error(text)
    exporter.run_ended()
    assert warnings(caplog) == said
    assert [list(logger.filters) for logger in theirs] == before


_RUN_AND_EXIT = """
import sys
from sglang_fence.observe.exporting import ExportContext
from sglang_fence.observe.ledger import Ledger
from sglang_fence_exporters.otel import make
from tests.exporters.otel.traces import decode_step

exporter = make(ExportContext(ledger=Ledger(), otlp=sys.argv[1]))
for step in range(3):
    exporter.step_traced(decode_step(step))
if sys.argv[2] == "ends":
    exporter.run_ended()
    print("dropped", exporter.dropped_steps)
else:
    sys.stdin.readline()  # once the collector was asked
    print("broke off")
"""


@pytest.mark.parametrize(("how", "says"), [("ends", "dropped 3\n"), ("breaks off", "broke off\n")])
@pytest.mark.parametrize("kind", [GrpcReceiver, HttpReceiver])
def test_the_process_ends_although_the_collector_hangs(
    kind: type[Receiver],
    how: str,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", str(1 + SPANS_BELOW))
    with kind() as receiver:
        receiver.hang()
        process = subprocess.Popen(
            [sys.executable, "-c", _RUN_AND_EXIT, receiver.url, how],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with process:
            try:
                assert receiver.asked.wait(2 * DEADLINE_S)
                # Less than what OpenTelemetry's own handlers at exit would wait.
                out, err = process.communicate("\n", timeout=DEADLINE_S * 0.8)
            finally:
                process.kill()
    assert process.returncode == 0
    assert out == says
    assert "Traceback" not in err
