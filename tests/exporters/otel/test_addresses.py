"""Where spans go is decided by stated rules, and a mistake is one line before anything is contacted."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from sglang_fence.errors import ConfigError
from sglang_fence_exporters.otel_address import Protocol, find_address

if TYPE_CHECKING:
    from tests.exporters.otel.conftest import Make

GRPC, HTTP = Protocol.GRPC, Protocol.HTTP
PROTOCOL = "OTEL_EXPORTER_OTLP_PROTOCOL"
TRACES_PROTOCOL = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
TRACES_ENDPOINT = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"


@pytest.mark.parametrize(
    ("url", "environ", "protocol", "endpoint"),
    [
        ("http://host:4318", {}, HTTP, "http://host:4318/v1/traces"),
        ("http://host:4318/", {}, HTTP, "http://host:4318/v1/traces"),
        ("http://host:4318/v1/traces", {}, HTTP, "http://host:4318/v1/traces"),
        ("https://host/otlp/v1/traces?key=1", {}, HTTP, "https://host/otlp/v1/traces?key=1"),
        ("http://host:4317", {}, GRPC, "http://host:4317"),
        ("https://host:4317/", {}, GRPC, "https://host:4317"),
        ("grpc://host:9", {}, GRPC, "http://host:9"),
        ("grpc://host", {}, GRPC, "http://host:4317"),
        ("grpcs://[::1]", {}, GRPC, "https://[::1]:4317"),
        ("GRPC://host:9", {PROTOCOL: "http/protobuf"}, GRPC, "http://host:9"),
        ("http://host:4317", {PROTOCOL: "http/protobuf"}, HTTP, "http://host:4317/v1/traces"),
        ("http://host:9", {PROTOCOL: "grpc"}, GRPC, "http://host:9"),
        ("http://host:9", {PROTOCOL: "grpc", TRACES_PROTOCOL: "http/protobuf"}, HTTP, "http://host:9/v1/traces"),
        ("http://host:9", {ENDPOINT: "http://other:1"}, HTTP, "http://host:9/v1/traces"),
        (None, {}, HTTP, "http://localhost:4318/v1/traces"),
        (None, {PROTOCOL: "grpc"}, GRPC, "http://localhost:4317"),
        (None, {PROTOCOL: "", ENDPOINT: ""}, HTTP, "http://localhost:4318/v1/traces"),
        (None, {ENDPOINT: "http://host:9/base/"}, HTTP, "http://host:9/base/v1/traces"),
        (None, {ENDPOINT: "http://host:4317"}, GRPC, "http://host:4317"),
        (None, {TRACES_ENDPOINT: "http://host:9/mine", ENDPOINT: "http://no:1"}, HTTP, "http://host:9/mine"),
        (None, {TRACES_ENDPOINT: "http://host:9"}, HTTP, "http://host:9"),
    ],
)
def test_the_rules(url: str | None, environ: dict[str, str], protocol: Protocol, endpoint: str) -> None:
    assert find_address(url, environ) == (protocol, endpoint)


@pytest.mark.parametrize(
    ("url", "environ", "says"),
    [
        ("", {}, "--otlp '' is no OTLP address: write http or https or grpc or grpcs and ://HOST:PORT"),
        ("localhost:4317", {}, "--otlp 'localhost:4317' is no OTLP address"),
        ("host", {}, "--otlp 'host' is no OTLP address"),
        ("ftp://host:1", {}, "--otlp 'ftp://host:1' is no OTLP address"),
        ("http://", {}, "--otlp 'http://' is no OTLP address"),
        ("http://[::1", {}, "is no OTLP address"),
        ("http://ho st:1", {}, "is no OTLP address"),
        ("http://:4318", {}, "names no host"),
        ("http://host:0", {}, "names no usable port: write a number from 1 to 65535"),
        ("http://host:65536", {}, "names no usable port"),
        ("grpc://host:x", {}, "names no usable port"),
        ("grpc://host:4317/v1/traces", {}, "names a path, and gRPC has none"),
        ("http://host:4318", {PROTOCOL: "http/json"}, f"{PROTOCOL}='http/json' isn't spoken"),
        ("grpc://host:4318", {TRACES_PROTOCOL: "udp"}, f"{TRACES_PROTOCOL}='udp' isn't spoken"),
        (None, {ENDPOINT: "host:4317"}, f"{ENDPOINT} 'host:4317' is no OTLP address"),
        (None, {TRACES_ENDPOINT: "http://host:-1"}, f"{TRACES_ENDPOINT} 'http://host:-1' names no usable port"),
    ],
)
def test_a_mistake_is_one_line_that_names_it_and_the_mend(
    url: str | None,
    environ: dict[str, str],
    says: str,
    make_otel: Make,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError) as raised:
        make_otel(url)
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_password_in_the_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigError, match="names a user: put credentials into OTEL_EXPORTER_OTLP_HEADERS") as raised:
        find_address("http://jane:secret@host:4318", {})
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_BSP_MAX_QUEUE_SIZE", "many"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "0"),
        ("OTEL_BSP_SCHEDULE_DELAY", "-5"),
        ("OTEL_BSP_EXPORT_TIMEOUT", "1.5"),
    ],
)
def test_a_variable_that_is_no_number_is_refused(
    make_otel: Make,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=f"{name}='{value}' isn't a positive whole number"):
        make_otel("http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("name", "value"),
    [("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"), ("OTEL_EXPORTER_OTLP_COMPRESSION", "zip")],
)
def test_a_variable_that_the_otlp_exporter_cannot_use_is_refused(
    make_otel: Make,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=r"can't use its OTEL_EXPORTER_OTLP_\* variables: .*" + value):
        make_otel("grpc://127.0.0.1:1")


@pytest.mark.parametrize(("url", "package"), [("grpc://h:1", "grpc"), ("http://h:1", "http")])
def test_a_missing_package_is_named_with_the_extra_that_brings_it(
    make_otel: Make,
    monkeypatch: pytest.MonkeyPatch,
    url: str,
    package: str,
) -> None:
    monkeypatch.setitem(sys.modules, f"opentelemetry.exporter.otlp.proto.{package}.trace_exporter", None)
    with pytest.raises(ConfigError, match=r"needs a package that is missing .*: pip install sglang-fence\[otel\]"):
        make_otel(url)
