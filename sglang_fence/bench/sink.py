"""A collector that takes traces and throws them away, in a process of its own: what is measured is the sender."""

from __future__ import annotations

import multiprocessing
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator
    from multiprocessing.connection import Connection


class _Taker(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        """Take a request whole, and say that all is well."""
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Say nothing."""


def _serve(told: Connection) -> None:
    server = HTTPServer(("127.0.0.1", 0), _Taker)
    told.send(server.server_port)
    server.serve_forever()


@contextmanager
def collector() -> Generator[str]:
    """Start one on a free loopback port; yields its address for OTLP over HTTP."""
    spawn = multiprocessing.get_context("spawn")  # a fork would take CUDA along
    told, tells = spawn.Pipe(duplex=False)
    process = spawn.Process(target=_serve, args=(tells,), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{told.recv()}"
    finally:
        process.terminate()
        process.join()
