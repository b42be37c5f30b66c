"""A real Prometheus and a real Alertmanager with a webhook, started for a test."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
import time
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from pathlib import Path

PROMETHEUS = shutil.which("prometheus")
ALERTMANAGER = shutil.which("alertmanager") or shutil.which("prometheus-alertmanager")
PROMTOOL = shutil.which("promtool")
AMTOOL = shutil.which("amtool")

DEADLINE_S = 90


def eventually(what: str, look: Callable[[], object]) -> None:
    """Poll until ``look`` says yes."""
    deadline = time.monotonic() + DEADLINE_S
    while not look():
        assert time.monotonic() < deadline, f"not so within {DEADLINE_S} s: {what}"
        threading.Event().wait(0.1)


class Webhook:
    """Whoever is on call: keeps the alerts that Alertmanager tells of, in order."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        told = self.told

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                told.extend(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["alerts"])
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def of(self, alert: str, status: str, **labels: str) -> list[dict[str, Any]]:
        """Return what was told of ``alert`` in ``status``."""
        return [
            one
            for one in self.told
            if one["status"] == status
            and one["labels"]["alertname"] == alert
            and labels.items() <= one["labels"].items()
        ]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Api:
    """The query API of a Prometheus."""

    def __init__(self, address: str) -> None:
        self._url = f"http://{address}/api/v1/"

    def ask(self, what: str, parameters: Mapping[str, str]) -> Any:  # noqa: ANN401 - JSON
        """Return an answer's data; None while nobody answers yet."""
        try:
            with urlopen(f"{self._url}{what}?{urlencode(parameters)}", timeout=30) as answer:  # noqa: S310 - it is HTTP
                return json.load(answer)["data"]
        except HTTPError as error:
            if error.code == HTTPStatus.SERVICE_UNAVAILABLE:  # it is starting
                return None
            pytest.fail(f"{what} {parameters}: {error.read().decode()}")
        except URLError:
            return None

    def values(self, query: str) -> list[tuple[dict[str, str], float]]:
        """Return an instant query's series and values."""
        data = self.ask("query", {"query": query})
        if not data:
            return []
        if data["resultType"] == "scalar":
            return [({}, float(data["result"][1]))]
        return [(row["metric"], float(row["value"][1])) for row in data["result"]]


def free_address() -> str:
    """Return an address of the loopback that nobody listens on now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


@contextmanager
def running(command: list[str], log: Path) -> Generator[None]:
    """Run a server until the end of the block."""
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            yield
        finally:
            process.terminate()
            process.wait(30)


@contextmanager
def stack(folder: Path, rules: Path, targets: Mapping[str, str], webhook: Webhook) -> Generator[Api]:
    """Run both, with ``targets`` by job scraped twice a second. Their configurations are checked first."""
    addresses = free_address(), free_address()
    config = {
        "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"},
        "rule_files": [str(rules)],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [addresses[1]]}]}]},
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": [target]}]} for job, target in targets.items()
        ],
    }
    routes = {
        "route": {"receiver": "on-call", "group_by": ["..."], "group_wait": "0s", "group_interval": "1s"},
        "receivers": [{"name": "on-call", "webhook_configs": [{"url": f"http://127.0.0.1:{webhook.port}/"}]}],
    }
    paths = folder / "prometheus.yml", folder / "alertmanager.yml"
    for path, content in zip(paths, (config, routes), strict=True):
        path.write_text(json.dumps(content), encoding="utf-8")  # which is YAML
    for tool, what, path in ((PROMTOOL, "config", paths[0]), (AMTOOL, "", paths[1])):
        check = [str(tool), "check", what] if what else [str(tool), "check-config"]
        checked = subprocess.run([*check, str(path)], capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stdout + checked.stderr
    prometheus = [
        str(PROMETHEUS),
        f"--config.file={paths[0]}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={addresses[0]}",
        "--rules.alert.resend-delay=1s",
        "--enable-feature=exemplar-storage",
    ]
    alertmanager = [
        str(ALERTMANAGER),
        f"--config.file={paths[1]}",
        f"--storage.path={folder / 'alerts'}",
        f"--web.listen-address={addresses[1]}",
        "--cluster.listen-address=",
    ]
    with running(alertmanager, folder / "alertmanager.log"), running(prometheus, folder / "prometheus.log"):
        yield Api(addresses[0])
