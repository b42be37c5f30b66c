"""Receivers, and exporters that end with their test."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

import pytest

from sglang_fence.observe.exporting import ExportContext
from sglang_fence.observe.ledger import Ledger
from sglang_fence_exporters.otel import OpenTelemetryExporter, make
from tests.exporters.otel.receivers import GrpcReceiver, HttpReceiver, Receiver

if TYPE_CHECKING:
    from collections.abc import Iterator


class Make(Protocol):
    """Makes an exporter that sends to ``otlp``."""

    def __call__(
        self,
        otlp: str | None,
        *,
        ledger: Ledger | None = None,
        virtual_time: bool = False,
    ) -> OpenTelemetryExporter: ...


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away what the machine says about OpenTelemetry, and any proxy before loopback."""
    for name in os.environ:
        if name.startswith("OTEL_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")


@pytest.fixture
def make_otel() -> Iterator[Make]:
    """Return what makes exporters; they end with the test, if they didn't before."""
    made: list[OpenTelemetryExporter] = []

    def make_one(
        otlp: str | None,
        *,
        ledger: Ledger | None = None,
        virtual_time: bool = False,
    ) -> OpenTelemetryExporter:
        context = ExportContext(ledger=ledger or Ledger(), otlp=otlp, virtual_time=virtual_time)
        made.append(make(context))
        return made[-1]

    yield make_one
    for exporter in made:
        if not exporter._ending.is_set():
            exporter.run_ended()


@pytest.fixture(params=[GrpcReceiver, HttpReceiver], ids=lambda kind: kind.protocol)
def receiver(request: pytest.FixtureRequest) -> Iterator[Receiver]:
    """Return a receiver, once over gRPC and once over HTTP."""
    with request.param() as one:
        yield one
