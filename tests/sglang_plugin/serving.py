"""Real SGLang servers for the tests: upstream's code on a CPU, in an environment of its own.

``SGLANG_FENCE_TEST_ENVS`` names the environments, separated by colons. Each is a virtual environment with SGLang, this
project, and a tiny model at ``tiny-llama``.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

ROOT = Path(__file__).parents[2]
HELPERS = Path(__file__).parent / "helpers"
QUIET = 12
"""So many looks, a fifth of a second apart, show the same once nothing is to come."""

START_S = 240.0
"""A server is ready after about 25 s on an idle machine."""

PLUGINS = {
    "barrier_counting": "barrier_counting:register",
    "failing_hooks": "failing_hooks:register",
    "cpu_graphs": "cpu_graphs:register",
}
"""Test plugins, found by SGLang's loader through an entry point as any."""


def environments() -> list[Path]:
    """Return the environments to test in."""
    return [Path(path) for path in os.environ.get("SGLANG_FENCE_TEST_ENVS", "").split(":") if path]


def version_of(environment: Path) -> str:
    """Return the SGLang version in it."""
    found = sorted(environment.glob("lib/python3*/site-packages/sglang-*.dist-info"))
    return found[-1].name.removeprefix("sglang-").removesuffix(".dist-info")


@dataclass
class Server:
    """A running server."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path
    counts: Path
    pids: set[int] = field(default_factory=set[int])

    def generate(self, prompts: list[list[int]], new_tokens: int = 6) -> list[list[int]]:
        """Return the tokens that follow each prompt, greedily."""
        reply = self.post(
            "/generate",
            {
                "input_ids": prompts,
                "sampling_params": {"max_new_tokens": new_tokens, "temperature": 0, "ignore_eos": True},
            },
        )
        return [item["output_ids"] for item in reply]

    def post(self, path: str, body: object) -> Any:  # noqa: ANN401 - JSON
        request = urllib.request.Request(  # noqa: S310 - our own server
            self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=120) as response:  # noqa: S310 - as above
            return json.load(response)

    def metrics(self) -> str:
        with urllib.request.urlopen(self.url + "/metrics", timeout=60) as response:  # noqa: S310 - as above
            text: str = response.read().decode()
            return text

    def counted(self) -> Counter[tuple[str, str]]:
        """Return barriers by mode and fence, as the test plugin counted them, over all processes."""
        lines = [line for path in self.counts.glob("barriers.*") for line in path.read_text().splitlines()]
        return Counter((mode, fence) for mode, fence in (line.split() for line in lines))

    def wait_for(self, there: Callable[[str], bool], tries_s: float = 20.0) -> bool:
        """Return whether the metrics come to be so; they follow what happens within a second or two."""
        deadline = time.monotonic() + tries_s
        while not there(self.metrics()):
            if time.monotonic() > deadline:
                return False
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.2)
        return True

    def settled(self) -> str:
        """Return the metrics once nothing of ours changes any more: they are written about once a second, in pieces."""
        seen: list[list[str]] = []

        def same(text: str) -> bool:
            seen.append([line for line in text.splitlines() if line.startswith("sglang_fence_")])
            return len(seen) > QUIET and all(lines == seen[-1] for lines in seen[-QUIET:])

        self.wait_for(same, 40.0)
        return self.metrics()


_SAMPLE = re.compile(r"^(?P<name>[\w:]+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def samples(text: str, name: str, **labels: str) -> list[tuple[dict[str, str], float]]:
    """Return the samples called ``name`` whose labels are those, each with its labels."""
    found: list[tuple[dict[str, str], float]] = []
    for line in text.splitlines():
        match = _SAMPLE.match(line)
        if match and match["name"] == name:
            own = dict(_LABEL.findall(match["labels"] or ""))
            if labels.items() <= own.items():
                found.append((own, float(match["value"])))
    return found


def total(text: str, name: str, **labels: str) -> float:
    """Return their sum."""
    return sum(value for _, value in samples(text, name, **labels))


def by(text: str, name: str, *keys: str) -> dict[tuple[str, ...], float]:
    """Return the sums that aren't 0, by the values of some labels."""
    sums: defaultdict[tuple[str, ...], float] = defaultdict(float)
    for labels, value in samples(text, name):
        sums[tuple(labels[key] for key in keys)] += value
    return {key: value for key, value in sums.items() if value}


@contextlib.contextmanager
def serve(
    environment: Path,
    scratch: Path,
    *arguments: str,
    environ: Mapping[str, str] | None = None,
    plugins: tuple[str, ...] = ("barrier_counting",),
    metrics: bool = True,
    port: int | None = None,
) -> Generator[Server]:
    """Run a server, on a free port if none is named; SIGTERM ends it, and it is killed where that doesn't help."""
    scratch.mkdir(parents=True, exist_ok=True)
    port = free_port() if port is None else port
    log, counts = scratch / "server.log", scratch / "counts"
    counts.mkdir(exist_ok=True)
    variables = {
        **{name: value for name, value in os.environ.items() if name != "PROMETHEUS_MULTIPROC_DIR"},
        "SGLANG_USE_CPU_ENGINE": "1",
        "SGLANG_ENABLE_WAR_BARRIER": "1",
        "FENCE_TEST_COUNTS": str(counts),
        "PYTHONPATH": search_path(scratch, plugins),
        "TMPDIR": str(scratch),
        "OMP_NUM_THREADS": "1",
        **(environ or {}),
    }
    command = [
        str(environment / "bin/python"), "-m", "sglang.launch_server",
        "--model-path", str(environment / "tiny-llama"), "--device", "cpu", "--load-format", "dummy",
        "--attention-backend", "torch_native", "--sampling-backend", "pytorch", "--dtype", "float32",
        "--mem-fraction-static", "0.05", "--max-total-tokens", "4096", "--max-running-requests", "8",
        "--disable-cuda-graph", "--skip-server-warmup", "--host", "127.0.0.1", "--port", str(port),
        "--random-seed", "1", *(["--enable-metrics"] if metrics else []), *arguments,
    ]  # fmt: skip
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=variables, stdout=out, stderr=out, start_new_session=True)
    server = Server(f"http://127.0.0.1:{port}", process, log, counts)
    try:
        _wait_until_ready(server)
        server.pids = children(process.pid)
        yield server
    finally:
        stop(server)


def stop(server: Server, patience_s: float = 60.0) -> int:
    """End a server by SIGTERM and return its exit status; what is left after ``patience_s`` is killed."""
    process = server.process
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        return process.wait(patience_s)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def alive(pids: set[int], patience_s: float = 20.0) -> set[int]:
    """Return those that still run after ``patience_s``; one that only waits for its parent to ask doesn't."""
    deadline = time.monotonic() + patience_s
    pause = threading.Event()
    while left := {pid for pid in pids if _state(pid) not in {None, "Z", "X"}}:
        if time.monotonic() > deadline:
            return left
        pause.wait(0.1)
    return set()


def _state(pid: int) -> str | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return None


def children(pid: int) -> set[int]:
    """Return every process below ``pid``."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found: set[int] = set()
    while more := {child for child, parent in parents.items() if parent in found | {pid}} - found:
        found |= more
    return found


def search_path(scratch: Path, plugins: tuple[str, ...]) -> str:
    """Return where Python looks first: test plugins, and this tree, of which the environment may have another."""
    return os.pathsep.join(map(str, (plugin_folder(scratch, plugins), HELPERS, ROOT, ROOT / "exporters")))


def plugin_folder(scratch: Path, plugins: tuple[str, ...]) -> Path:
    """Make what looks like an installed distribution with these entry points."""
    folder = scratch / "plugins"
    dist = folder / "fence_test_plugins-1.dist-info"
    dist.mkdir(parents=True, exist_ok=True)
    (dist / "METADATA").write_text("Metadata-Version: 2.1\nName: fence-test-plugins\nVersion: 1\n")
    rows = [f"{name} = {PLUGINS[name]}" for name in plugins]
    (dist / "entry_points.txt").write_text("\n".join(["[sglang.srt.plugins]", *rows, ""]))
    return folder


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until_ready(server: Server) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        with (
            contextlib.suppress(urllib.error.URLError, OSError),
            urllib.request.urlopen(  # noqa: S310 - our own server
                server.url + "/model_info", timeout=5
            ),
        ):
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.process.wait(0.5)
            break
    tail = server.log.read_text(errors="replace")[-6000:]
    msg = f"the server did not get ready:\n{tail}"
    raise RuntimeError(msg)
