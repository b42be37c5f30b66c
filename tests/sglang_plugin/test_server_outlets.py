"""Real servers on a CPU, and where what is seen of them goes: spans over the wire, a port of our own, a live change."""

from __future__ import annotations

import contextlib
import json
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.exporters.otel.receivers import GrpcReceiver, HttpReceiver, values
from tests.sglang_plugin.controls import prompts
from tests.sglang_plugin.serving import alive, children, free_port, samples, serve, total

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.sglang

OURS = "sglang_fence"


def _wait(there: Callable[[], bool], patience_s: float = 30.0) -> bool:
    deadline, pause = time.monotonic() + patience_s, threading.Event()
    while not there():
        if time.monotonic() > deadline:
            return False
        pause.wait(0.1)
    return True


def test_spans_of_a_running_server_reach_a_receiver(environment: Path, tmp_path: Path) -> None:
    with HttpReceiver() as receiver:
        environ = {
            "SGLANG_FENCE_TRACE_RATIO": "1",
            "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
            "FENCE_TEST_GRAPHS": "marker",
        }
        with serve(environment, tmp_path, environ=environ, plugins=("barrier_counting", "cpu_graphs")) as server:
            server.generate(prompts())
            barriers = server.counted()

            def steps() -> list[dict[str, str | int | float | bool]]:
                return [values(span.attributes) for span in receiver.spans if span.name == "step"]

            assert _wait(lambda: len(steps()) >= barriers.total())
            assert len(steps()) == barriers.total()
            fences = {(step["sglang_fence.mode"], step["sglang_fence.fence"]) for step in steps()}
            assert fences == {("decode", "fine"), ("extend", "coarse")}
            names = {span.name for span in receiver.spans}
            assert names >= {"step", "launch", "barrier"}
            assert total(server.metrics(), "sglang_fence_exporter_dropped_steps_total") == 0
            below = children(server.process.pid)
            senders = [pid for pid in below if b"otel_sender" in Path(f"/proc/{pid}/cmdline").read_bytes()]
            assert len(senders) == 1  # there is one scheduler
    assert not alive(below)


def test_spans_join_the_provider_that_sglang_sets_and_are_linked_to_its_requests(
    environment: Path, tmp_path: Path
) -> None:
    with GrpcReceiver() as receiver:
        endpoint = receiver.url.removeprefix("grpc://")
        arguments = ("--enable-trace", "--otlp-traces-endpoint", endpoint)
        with serve(environment, tmp_path, *arguments, environ={"SGLANG_FENCE_TRACE_RATIO": "1"}) as server:
            server.generate(prompts()[:8])
            barriers = server.counted().total()

            def ours() -> int:
                return sum(span.name == "step" for span in receiver.spans)

            assert _wait(lambda: ours() >= barriers)
            scopes = {
                scope.scope.name
                for received in receiver.received
                for resource in received.request.resource_spans
                for scope in resource.scope_spans
            }
            assert OURS in scopes
            assert len(scopes) > 1  # SGLang's own spans, by the same provider
            roots = {span.span_id for span in receiver.spans}
            linked = [link.span_id for span in receiver.spans if span.name == "step" for link in span.links]
            assert roots & set(linked)


def test_timing_and_tracing_change_on_a_live_server(environment: Path, tmp_path: Path) -> None:
    control = tmp_path / "control.json"
    with HttpReceiver() as receiver:
        environ = {"SGLANG_FENCE_CONTROL": str(control), "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url}
        with serve(environment, tmp_path, environ=environ) as server:
            server.generate(prompts()[:8])
            assert not receiver.spans
            control.write_text(json.dumps({"trace_ratio": 1.0}))

            def traced() -> bool:
                server.generate(prompts()[:8])
                return bool(receiver.spans)

            assert _wait(traced)
    log = server.log.read_text(errors="replace")
    assert "sglang-fence: timing_every 101, trace_ratio 1, by" in log


def test_without_sglangs_metrics_a_port_of_our_own_can_be_asked_for(environment: Path, tmp_path: Path) -> None:
    port = free_port()
    environ = {"SGLANG_FENCE_METRICS_PORT": str(port)}
    with serve(environment, tmp_path, environ=environ, metrics=False) as server:
        server.generate(prompts()[:8])
        with contextlib.suppress(urllib.error.HTTPError):
            assert "sglang_fence_steps_total" not in server.metrics()
        own = f"http://127.0.0.1:{port}/metrics"

        def text() -> str:
            with urllib.request.urlopen(own, timeout=30) as response:
                found: str = response.read().decode()
                return found

        assert _wait(lambda: total(text(), "sglang_fence_steps_total") == server.counted().total())
        assert samples(text(), "sglang_fence_steps_total")[0][0]["tp_rank"] == "0"


def test_switched_off_it_hooks_nothing(environment: Path, tmp_path: Path) -> None:
    with serve(environment, tmp_path, environ={"SGLANG_FENCE": "0"}) as server:
        server.generate(prompts()[:8])
        assert server.counted()
        assert OURS not in server.metrics()
    assert "sglang-fence" not in server.log.read_text(errors="replace")


def test_only_schedulers_are_hooked(environment: Path, tmp_path: Path) -> None:
    with serve(environment, tmp_path) as server:
        server.generate(prompts()[:8])
    log = server.log.read_text(errors="replace")
    applied = [line for line in log.splitlines() if "Applied" in line and "_apply_war_barrier" in line]
    assert len(applied) <= 2  # the scheduler's, and the main process's where it has loaded the scheduler's module
