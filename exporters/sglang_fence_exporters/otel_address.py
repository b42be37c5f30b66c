"""Where spans go: ``--otlp``, or else the standard ``OTEL_EXPORTER_OTLP_*`` variables. Nothing is contacted here."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import SplitResult, urlsplit

from opentelemetry.sdk.environment_variables import (
    OTEL_EXPORTER_OTLP_ENDPOINT,
    OTEL_EXPORTER_OTLP_PROTOCOL,
    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT,
    OTEL_EXPORTER_OTLP_TRACES_PROTOCOL,
)

from sglang_fence.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

GRPC_PORT = 4317
TRACES_PATH = "/v1/traces"
DEFAULT_URL = "http://localhost:4318"
"""Where nothing is said, as the specification has it: a collector on this machine, over HTTP."""

_SCHEMES = ("http", "https", "grpc", "grpcs")


class Protocol(StrEnum):
    """How spans travel, by the names of ``OTEL_EXPORTER_OTLP_PROTOCOL``."""

    GRPC = "grpc"
    HTTP = "http/protobuf"


class Address(NamedTuple):
    """Where spans go, and how."""

    protocol: Protocol
    endpoint: str
    """A URL with the scheme http or https, as the OTLP exporters take it. For HTTP with the path of traces."""


class _Asked(NamedTuple):
    """An address as somebody wrote it."""

    source: str
    """The flag or variable, for messages."""
    url: str
    complete: bool
    """Whether an HTTP path in it is the path of traces, rather than a base that it is added to."""


def find_address(url: str | None, environ: Mapping[str, str]) -> Address:
    """Return where spans go.

    Args:
        url: what ``--otlp`` says; None: where the variables say.
        environ: the process's environment.

    Raises:
        ConfigError: no scheme or an unknown one, no host, a port that is none, credentials in the URL, a path where
            gRPC has none, or a protocol that isn't spoken.
    """
    asked = _asked(url, environ)
    shown = _without_credentials(asked.url)
    parts = _split(asked.url)
    if parts is None or parts.scheme not in _SCHEMES or not parts.netloc or re.search(r"\s", asked.url):
        msg = f"{asked.source} {shown!r} is no OTLP address: write {' or '.join(_SCHEMES)} and ://HOST:PORT"
        raise ConfigError(msg)
    if "@" in parts.netloc:
        msg = f"{asked.source} {shown!r} names a user: put credentials into OTEL_EXPORTER_OTLP_HEADERS instead"
        raise ConfigError(msg)
    if not parts.hostname:
        msg = f"{asked.source} {shown!r} names no host: write {parts.scheme}://HOST:PORT"
        raise ConfigError(msg)
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        msg = f"{asked.source} {shown!r} names no usable port: write a number from 1 to 65535"
        raise ConfigError(msg)
    protocol = _protocol(parts.scheme, port, environ)
    if protocol is Protocol.GRPC:
        return _over_grpc(asked.source, parts, port)
    return _over_http(asked, parts)


def _asked(url: str | None, environ: Mapping[str, str]) -> _Asked:
    if url is not None:
        parts = _split(url)
        return _Asked("--otlp", url, complete=parts is not None and parts.path not in {"", "/"})
    # The specification takes an empty variable for one that isn't set.
    if traces := environ.get(OTEL_EXPORTER_OTLP_TRACES_ENDPOINT):
        return _Asked(OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, traces, complete=True)
    if base := environ.get(OTEL_EXPORTER_OTLP_ENDPOINT):
        return _Asked(OTEL_EXPORTER_OTLP_ENDPOINT, base, complete=False)
    port = GRPC_PORT if _chosen_protocol(environ) is Protocol.GRPC else None
    return _Asked("the default", DEFAULT_URL if port is None else f"http://localhost:{port}", complete=False)


def _split(url: str) -> SplitResult | None:
    try:
        return urlsplit(url)
    except ValueError:  # brackets that are no IPv6 address
        return None


def _without_credentials(url: str) -> str:
    return re.sub(r"(?<=://)[^/@]*@", "…@", url)


def _chosen_protocol(environ: Mapping[str, str]) -> Protocol | None:
    for name in (OTEL_EXPORTER_OTLP_TRACES_PROTOCOL, OTEL_EXPORTER_OTLP_PROTOCOL):
        value = environ.get(name, "").strip().lower()
        if value:
            try:
                return Protocol(value)
            except ValueError:
                msg = f"{name}={value!r} isn't spoken: write {' or '.join(Protocol)}, or unset it"
                raise ConfigError(msg) from None
    return None


def _protocol(scheme: str, port: int | None, environ: Mapping[str, str]) -> Protocol:
    chosen = _chosen_protocol(environ)  # read in any case: a wrong one is a mistake, whether or not it decides
    if scheme.startswith("grpc"):
        return Protocol.GRPC
    if chosen is not None:
        return chosen
    return Protocol.GRPC if port == GRPC_PORT else Protocol.HTTP


def _over_grpc(source: str, parts: SplitResult, port: int | None) -> Address:
    if parts.path not in {"", "/"} or parts.query or parts.fragment:
        msg = f"{source} {parts.geturl()!r} names a path, and gRPC has none: leave it out, or use HTTP (port 4318)"
        raise ConfigError(msg)
    scheme = "https" if parts.scheme in {"https", "grpcs"} else "http"
    # Spelled out: gRPC would take 443 for one that is missing.
    where = parts.netloc if port is not None else f"{parts.netloc.removesuffix(':')}:{GRPC_PORT}"
    return Address(Protocol.GRPC, f"{scheme}://{where}")


def _over_http(asked: _Asked, parts: SplitResult) -> Address:
    if asked.complete:
        return Address(Protocol.HTTP, parts.geturl())
    return Address(Protocol.HTTP, parts._replace(path=parts.path.rstrip("/") + TRACES_PATH).geturl())
