"""A process's own provider gets the spans, and is left as it was. Each in a process of its own: there is but one."""

from __future__ import annotations

import subprocess
import sys

from tests.exporters.otel.receivers import HttpReceiver
from tests.exporters.otel.traces import SPANS_BELOW

_HEAD = """
import logging, sys
logging.basicConfig(format="%(levelname)s %(message)s")
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from sglang_fence.observe.exporting import ExportContext, make_exporter
from sglang_fence.observe.ledger import Ledger
from tests.exporters.otel.traces import decode_step

def export(otlp):
    exporter = make_exporter("otel", ExportContext(ledger=Ledger(), otlp=otlp))
    exporter.step_traced(decode_step(0))
    exporter.run_ended()
    print("dropped", exporter.dropped_steps)
"""

_PROCESSS_OWN = """
class Provider(TracerProvider):
    def shutdown(self):
        print("shut down")

provider = Provider(shutdown_on_exit=False)
built = InMemorySpanExporter()
provider.add_span_processor(SimpleSpanProcessor(built))
trace.set_tracer_provider(provider)
export(sys.argv[1])
spans = built.get_finished_spans()
print("spans", len(spans), spans[-1].instrumentation_scope.name, provider is trace.get_tracer_provider())
with provider.get_tracer("app").start_as_current_span("still alive"):
    pass
print(built.get_finished_spans()[-1].name)
"""

_NONE = """
export(sys.argv[1])
print(type(trace.get_tracer_provider()).__name__)
"""

_SWITCHED_OFF = """
import os
os.environ["OTEL_SDK_DISABLED"] = "true"
export(sys.argv[1])
"""


def run(code: str, url: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _HEAD + code, url],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )


def test_the_processs_provider_gets_the_spans_and_is_never_shut_down() -> None:
    with HttpReceiver() as receiver:
        done = run(_PROCESSS_OWN, receiver.url)
        assert receiver.received == []
    assert done.stdout.splitlines() == ["dropped 0", f"spans {1 + SPANS_BELOW} sglang_fence True", "still alive"]
    assert done.stderr == (
        f"WARNING the process has a tracer provider: spans go there, and --otlp {receiver.url} isn't used\n"
    )


def test_without_one_we_use_our_own_and_do_not_set_it_for_the_process() -> None:
    with HttpReceiver() as receiver:
        done = run(_NONE, receiver.url)
        assert len(receiver.spans) == 1 + SPANS_BELOW
    assert done.stdout.splitlines() == ["dropped 0", "ProxyTracerProvider"]
    assert done.stderr == ""


def test_the_standard_switch_turns_it_off_and_nothing_counts_as_lost() -> None:
    with HttpReceiver() as receiver:
        done = run(_SWITCHED_OFF, receiver.url)
        assert receiver.received == []
    assert done.stdout.splitlines() == ["dropped 0"]
