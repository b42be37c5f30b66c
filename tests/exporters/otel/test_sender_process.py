"""Spans are built and sent by a process of their own, which has nothing of the serving one and tells all it does."""

from __future__ import annotations

import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sglang_fence.catalogue import Track
from sglang_fence.errors import ConfigError
from sglang_fence.observe.ledger import Ledger
from sglang_fence.observe.trace import SpanTimes
from sglang_fence_exporters.otel_in_process import InProcess
from tests.exporters.otel.processes import child_processes, is_left, sender_of, until
from tests.exporters.otel.receivers import HttpReceiver, Receiver, values
from tests.exporters.otel.test_spans import exemplars, finish
from tests.exporters.otel.traces import REQUEST, SPANS_BELOW, decode_step

if TYPE_CHECKING:
    from sglang_fence_exporters.otel import OpenTelemetryExporter
    from tests.exporters.otel.conftest import Make

UNKNOWN_SPAN = (SpanTimes("of_no_catalogue", Track.HOST, 1, 2),)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_it_loads_no_torch_and_the_end_leaves_nothing_of_it(
    receiver: Receiver, make_otel: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", str(1 + SPANS_BELOW))
    before = child_processes()
    exporter = make_otel(receiver.url)
    process_id = sender_of(exporter).process_id
    assert child_processes() - before == {process_id}
    exporter.step_traced(decode_step(0))
    exporter.step_traced(decode_step(1))
    until(lambda: exporter._route.settled == 2)  # all that it does has been done, and all is loaded that it needs
    loaded = Path(f"/proc/{process_id}/maps").read_text(encoding="utf-8")
    assert "python" in loaded
    assert "torch" not in loaded
    assert "libcuda" not in loaded
    exporter.run_ended()
    assert exporter.dropped_steps == 0
    assert len(receiver.spans) == 2 * (1 + SPANS_BELOW)
    assert not is_left(process_id)
    assert child_processes() == before


def test_it_has_no_file_of_the_serving_process_and_is_in_a_session_of_its_own(
    receiver: Receiver, make_otel: Make, tmp_path: Path
) -> None:
    with (tmp_path / "of the serving process").open("w") as ours:
        os.set_inheritable(ours.fileno(), True)  # noqa: FBT003 - positional alone
        process_id = sender_of(make_otel(receiver.url)).process_id
        held = {str(file.readlink()) for file in Path(f"/proc/{process_id}/fd").iterdir()}
    assert str(tmp_path / "of the serving process") not in held
    assert not {file for file in held if file.startswith("/") and not file.startswith("/dev/")}
    assert os.getsid(process_id) == process_id


def test_neither_virtual_time_nor_a_switched_off_sdk_has_one(make_otel: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    before = child_processes()
    assert isinstance(make_otel("http://127.0.0.1:1", virtual_time=True)._route, InProcess)
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert isinstance(make_otel("http://127.0.0.1:1")._route, InProcess)
    assert child_processes() == before


def test_counts_add_up_and_what_it_logs_is_logged_here(
    receiver: Receiver, make_otel: Make, caplog: pytest.LogCaptureFixture
) -> None:
    exporter = make_otel(receiver.url)
    for step in range(10):
        spans = UNKNOWN_SPAN if step in {3, 4, 5} else decode_step(step).spans
        exporter.step_traced(decode_step(step, spans=spans, links=(REQUEST, "none", "neither")))
    exporter.step_traced(decode_step(10, batch_size=object()))  # can't even be packed
    until(lambda: exporter.dropped_steps == 4)  # as soon as it is known, not only at the end
    exporter.run_ended()
    assert exporter.dropped_steps == 4
    assert exporter._route.settled == 7
    assert exporter.malformed_links == 2 * 7
    assert len({values(span.attributes)["sglang_fence.step_id"] for span in receiver.spans}) == 7
    here, there = sorted(caplog.records, key=lambda record: "step 3" in record.getMessage())
    assert (here.name, there.name) == ("sglang_fence_exporters.otel", "sglang_fence_exporters.otel_sender")
    assert there.getMessage().startswith("the spans of step 3 can't be built; more such steps are only counted\n")
    assert "KeyError: 'of_no_catalogue'" in there.getMessage()


def test_the_ledger_is_told_the_trace_that_arrives(receiver: Receiver, make_otel: Make) -> None:
    ledger = Ledger()
    finish(ledger, decode_step(0))
    exporter = make_otel(receiver.url, ledger=ledger)
    exporter.step_traced(decode_step(0))
    exporter.run_ended()
    assert exemplars(ledger) == [receiver.spans[0].trace_id.hex()]


def test_the_resource_is_the_serving_process(make_otel: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPERIMENTAL_RESOURCE_DETECTORS", "process")
    with HttpReceiver() as receiver:
        exporter = make_otel(receiver.url)
        exporter.step_traced(decode_step(0))
        exporter.run_ended()
        resource = receiver.received[0].request.resource_spans[0].resource
    process_ids = [pair.value.int_value for pair in resource.attributes if pair.key == "process.pid"]
    assert process_ids == [os.getpid()]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_what_ends_the_serving_process_does_not_end_it_first(
    number: signal.Signals, receiver: Receiver, make_otel: Make, caplog: pytest.LogCaptureFixture
) -> None:
    exporter = make_otel(receiver.url)
    os.kill(sender_of(exporter).process_id, number)
    exporter.step_traced(decode_step(0))
    exporter.run_ended()
    assert (exporter.dropped_steps, len(receiver.spans)) == (0, 1 + SPANS_BELOW)
    assert lines(caplog) == []


def test_when_it_is_killed_serving_goes_on_and_every_step_since_is_counted(
    receiver: Receiver, make_otel: Make, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", str(1 + SPANS_BELOW))
    exporter = make_otel(receiver.url)
    process_id = sender_of(exporter).process_id
    exporter.step_traced(decode_step(0))
    until(lambda: exporter._route.settled == 1)
    receiver.hang()
    exporter.step_traced(decode_step(1))  # handed over, and lost with it
    until(lambda: sender_of(exporter)._handed == 2)
    os.kill(process_id, signal.SIGKILL)
    until(lambda: exporter.dropped_steps == 1)
    until(lambda: not is_left(process_id))  # it is taken leave of once its end was seen
    for step in range(2, 6):
        exporter.step_traced(decode_step(step))
    until(lambda: exporter.dropped_steps == 5)
    exporter.run_ended()
    assert exporter.dropped_steps == 5
    assert len(lines(caplog)) == 1
    assert "the process that sends them ended with status -9" in lines(caplog)[0]


def test_one_that_cannot_even_begin_says_why_and_the_run_ends_at_once(
    make_otel: Make, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sglang_fence_exporters.otel_starting.MODULE", "sglang_fence_exporters.of_no_such_name")
    exporter = make_otel("http://127.0.0.1:1")
    process_id = sender_of(exporter).process_id
    exporter.step_traced(decode_step(0))
    exporter.run_ended()
    assert exporter.dropped_steps == 1
    assert not is_left(process_id)
    (line,) = lines(caplog)
    assert "ended with status 1: " in line
    assert "No module named sglang_fence_exporters.of_no_such_name" in line


def test_an_interpreter_that_cannot_be_started_is_a_mistake_of_the_set_up(
    make_otel: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(ConfigError, match="the process that sends traces can't be started") as raised:
        make_otel("http://127.0.0.1:1")
    assert "\n" not in str(raised.value)


def stop(exporter: OpenTelemetryExporter) -> int:
    process_id = sender_of(exporter).process_id
    os.kill(process_id, signal.SIGSTOP)
    return process_id


def test_while_it_takes_nothing_steps_wait_within_bounds_and_go_on_when_it_does(
    receiver: Receiver, make_otel: Make
) -> None:
    exporter = make_otel(receiver.url)
    process_id = stop(exporter)
    given = 0
    while exporter.dropped_steps == 0:  # its pipe and the queue are full
        exporter.step_traced(decode_step(given))
        given += 1
    assert given < 3 * 1024
    os.kill(process_id, signal.SIGCONT)
    exporter.run_ended()
    assert exporter.dropped_steps == 1
    assert len([span for span in receiver.spans if span.name == "step"]) == exporter._route.settled == given - 1


def test_one_that_hangs_is_killed_at_the_end_of_the_ends_time(
    receiver: Receiver, make_otel: Make, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_EXPORT_TIMEOUT", "300")
    exporter = make_otel(receiver.url)
    process_id = stop(exporter)
    for step in range(200):  # more than its pipe holds
        exporter.step_traced(decode_step(step))
    exporter.run_ended()
    until(lambda: not exporter._thread.is_alive())
    assert exporter.dropped_steps == 200
    assert not is_left(process_id)
    (line,) = lines(caplog)
    assert "the run ended before the collector answered" in line
