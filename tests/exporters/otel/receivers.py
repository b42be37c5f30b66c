"""Real OTLP receivers on loopback, over gRPC and over HTTP. What they can't do is only keep what they get."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import grpc  # type: ignore[import-untyped]  # it comes without types, and stubs for one test aren't worth a package
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

if TYPE_CHECKING:
    from opentelemetry.proto.common.v1.common_pb2 import KeyValue
    from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Received(NamedTuple):
    """One request that came in."""

    request: ExportTraceServiceRequest
    path: str
    headers: dict[str, str]


def values(pairs: Any) -> dict[str, str | int | float | bool]:  # noqa: ANN401 - a repeated field of protobuf
    """Return attributes as a dictionary."""
    found: dict[str, str | int | float | bool] = {}
    pair: KeyValue
    for pair in pairs:
        kind = pair.value.WhichOneof("value")
        assert kind is not None
        found[pair.key] = getattr(pair.value, kind)
    return found


class Receiver:
    """Keeps requests. While it hangs, it takes them and doesn't answer."""

    protocol: str
    url: str

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.asked = threading.Event()
        """Set once a request came in, answered or not."""
        self._answering = threading.Event()
        self._answering.set()
        self.refusing = False

    def hang(self) -> None:
        """Answer nothing more until it is closed."""
        self._answering.clear()

    def take(self, received: Received) -> bool:
        """Keep one request, unless it hangs or refuses."""
        self.asked.set()
        self._answering.wait()
        if self.refusing:
            return False
        self.received.append(received)
        return True

    @property
    def spans(self) -> list[Span]:
        """All spans that came in, in order."""
        return [
            span
            for received in self.received
            for resource in received.request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._answering.set()
        self.stop()

    def stop(self) -> None:
        """Stop listening."""
        raise NotImplementedError


class _Servicer(trace_service_pb2_grpc.TraceServiceServicer):
    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver

    def Export(  # noqa: N802 - the name in the protocol
        self,
        request: ExportTraceServiceRequest,
        context: Any,  # noqa: ANN401 - gRPC has no types
    ) -> ExportTraceServiceResponse:
        if not self._receiver.take(Received(request, "", dict(context.invocation_metadata()))):
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "refused by the test")
        return ExportTraceServiceResponse()


class GrpcReceiver(Receiver):
    """OTLP over gRPC."""

    protocol = "grpc"

    def __init__(self) -> None:
        super().__init__()
        self._server = grpc.server(ThreadPoolExecutor(4))
        add_servicer: Any = trace_service_pb2_grpc.add_TraceServiceServicer_to_server  # generated, without types
        add_servicer(_Servicer(self), self._server)
        self.url = f"grpc://127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def stop(self) -> None:
        self._server.stop(grace=None).wait()


class HttpReceiver(Receiver):
    """OTLP over HTTP, protobuf."""

    protocol = "http/protobuf"

    def __init__(self) -> None:
        super().__init__()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                request = ExportTraceServiceRequest.FromString(body)
                taken = receiver.take(Received(request, self.path, {k.lower(): v for k, v in self.headers.items()}))
                answer = ExportTraceServiceResponse().SerializeToString()
                with suppress(ConnectionError):  # whoever hung up on a hanging receiver is right
                    self.send_response(200 if taken else 400)
                    self.send_header("Content-Type", "application/x-protobuf")
                    self.send_header("Content-Length", str(len(answer)))
                    self.end_headers()
                    self.wfile.write(answer)
                    self.wfile.flush()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the standard library
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
