"""The Prometheus exporter: the catalogue's metrics, asked for at an HTTP port or written for multiprocess mode.

Nothing is done on the serving thread: the ledger adds steps up there, and this reads it from threads of its own.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from sglang_fence.errors import ConfigError
from sglang_fence.observe.observer import Observer
from sglang_fence_exporters.prometheus_collector import FenceCollector
from sglang_fence_exporters.prometheus_multiprocess import VARIABLE, MultiprocessExporter

if TYPE_CHECKING:
    from collections.abc import Mapping
    from threading import Thread
    from wsgiref.simple_server import WSGIServer

    from sglang_fence.observe.exporting import ExportContext
    from sglang_fence.observe.ledger import Ledger

__all__ = ["FenceCollector", "MultiprocessExporter", "PrometheusExporter", "make"]

_HIGHEST_PORT = 65_535

_PAUSE_S = 0.0002
"""After each metric of a scrape: long enough for a serving thread that waits for the interpreter to get it."""


def make(context: ExportContext) -> PrometheusExporter:
    """Serve metrics at the context's port, if it has one, and write them where ``PROMETHEUS_MULTIPROC_DIR`` is set.

    Raises:
        ConfigError: the port is taken or can't be bound; the folder isn't there; a constant label can't be used.
    """
    multiprocess = MultiprocessExporter(context.ledger, context.labels) if VARIABLE in os.environ else None
    try:
        server = (
            None
            if context.metrics_port is None
            else MetricsServer(context.ledger, context.metrics_host, context.metrics_port, context.labels)
        )
    except ConfigError:
        if multiprocess is not None:
            multiprocess.close()
        raise
    return PrometheusExporter(server, multiprocess)


class MetricsServer:
    """Serves ``/metrics`` in daemon threads, from a registry of its own.

    Raises:
        ConfigError: it can't be bound.
    """

    def __init__(self, ledger: Ledger, host: str, port: int, labels: Mapping[str, object] | None = None) -> None:
        if not 0 <= port <= _HIGHEST_PORT:
            msg = f"there is no port {port}: name one from 1 to {_HIGHEST_PORT}, or 0 for any that is free"
            raise ConfigError(msg)
        from prometheus_client import CollectorRegistry, start_http_server  # noqa: PLC0415 - decides on the mode

        registry = CollectorRegistry()
        registry.register(FenceCollector(ledger, labels, pause_s=_PAUSE_S))
        try:
            self._server: WSGIServer
            self._thread: Thread
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            raise ConfigError(_refusal(host, port, error)) from error
        self.port: int = self._server.server_port
        """The bound port."""

    def close(self) -> None:
        """End the server, and free its port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class PrometheusExporter(Observer):
    """What :func:`make` returns. It hears of no step; the ledger does."""

    def __init__(self, server: MetricsServer | None, multiprocess: MultiprocessExporter | None) -> None:
        self._server = server
        self._multiprocess = multiprocess

    @property
    def port(self) -> int | None:
        """Where metrics are served; None where they aren't."""
        return None if self._server is None else self._server.port

    def run_ended(self) -> None:
        """Write the last steps. The server goes on until :meth:`close`."""
        if self._multiprocess is not None:
            self._multiprocess.flush()

    def close(self) -> None:
        """End serving and writing. A second time does nothing."""
        if self._multiprocess is not None:
            self._multiprocess.close()
        if self._server is not None:
            self._server.close()
        self._server = self._multiprocess = None


def _refusal(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is taken on {host}: name another one, or 0 for any that is free"
    return f"metrics can't be served on {host} port {port} ({error}): name an address of this machine and a free port"
