"""However the serving process ends, what it handed over is sent, and the process that sends it is gone in time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.exporters.otel.processes import DEADLINE_S, is_running, until
from tests.exporters.otel.receivers import HttpReceiver, Receiver
from tests.exporters.otel.traces import SPANS_BELOW

if TYPE_CHECKING:
    from collections.abc import Iterator

STEPS = 3

_SERVING = f"""
import subprocess, sys
from sglang_fence.observe.exporting import ExportContext
from sglang_fence.observe.ledger import Ledger
from sglang_fence_exporters.otel import make
from tests.exporters.otel.processes import sender_of, until
from tests.exporters.otel.traces import decode_step

exporter = make(ExportContext(ledger=Ledger(), otlp=sys.argv[1]))
sender = sender_of(exporter)
for step in range({STEPS}):
    exporter.step_traced(decode_step(step))
until(lambda: sender._handed == {STEPS} and sender._writer.is_clear)
heir = 0
if sys.argv[2] == "with an heir":  # as one that was forked has, it has our end of the pipe when we are gone
    nowhere = {{"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}}
    heir = subprocess.Popen(["sleep", "600"], pass_fds=[sender._pipes.stdin.fileno()], **nowhere).pid
print(sender.process_id, heir, flush=True)
sys.stdin.readline()
"""


class Serving:
    """A serving process that has handed its steps over, and waits to be told to exit."""

    def __init__(self, url: str, how: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _SERVING, url, how],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        self.sender, self.heir = map(int, self.process.stdout.readline().split())

    def clean(self) -> None:
        """Leave nothing, also where a test has failed."""
        for process_id in (self.sender, self.heir):
            if process_id and is_running(process_id):
                os.kill(process_id, signal.SIGKILL)
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def collector() -> Iterator[Receiver]:
    """Return a receiver."""
    with HttpReceiver() as receiver:
        yield receiver


@pytest.fixture(params=["alone", "with an heir"])
def serving(request: pytest.FixtureRequest, collector: Receiver) -> Iterator[Serving]:
    """Return a serving process, once with and once without another that has inherited its pipes."""
    one = Serving(collector.url, request.param)
    yield one
    one.clean()


def test_killed(serving: Serving, collector: Receiver) -> None:
    assert is_running(serving.sender)
    serving.process.kill()
    serving.process.wait()
    until(lambda: not is_running(serving.sender))
    assert len(collector.spans) == STEPS * (1 + SPANS_BELOW)


def test_broken_off_without_an_end_to_the_run(serving: Serving, collector: Receiver) -> None:
    out, err = serving.process.communicate("\n", timeout=DEADLINE_S)
    assert (serving.process.returncode, out, err) == (0, "", "")
    until(lambda: not is_running(serving.sender))
    assert len(collector.spans) == STEPS * (1 + SPANS_BELOW)


def test_by_ctrl_c_which_the_whole_foreground_gets(serving: Serving, collector: Receiver) -> None:
    os.killpg(serving.process.pid, signal.SIGINT)
    serving.process.wait(DEADLINE_S)
    until(lambda: not is_running(serving.sender))
    assert len(collector.spans) == STEPS * (1 + SPANS_BELOW)


def test_killed_with_a_collector_that_never_answers(collector: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_EXPORT_TIMEOUT", "600")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "300")
    collector.hang()
    serving = Serving(collector.url, "alone")
    try:
        serving.process.kill()
        serving.process.wait()
        until(lambda: not is_running(serving.sender))
        assert collector.asked.is_set()
    finally:
        serving.clean()
