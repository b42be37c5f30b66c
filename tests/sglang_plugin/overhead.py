"""What the plugin costs a server on a CPU: servers with and without, asked for blocks in turn.

    SGLANG_FENCE_TEST_ENVS=ENV python3 -m tests.sglang_plugin.overhead SCRATCH [ROUNDS]

A scheduler without work spins, so every server but the one that is asked is stopped meanwhile. A second one without the
plugin shows what two servers of one kind differ by. Prints ratios of requests/s to the first one without: the median,
and the smallest and largest.
"""

# ruff: noqa: T201 - it prints

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.sglang_plugin.controls import prompts
from tests.sglang_plugin.serving import Server, environments, serve

if TYPE_CHECKING:
    from collections.abc import Generator

REQUESTS = 400


def rate(server: Server) -> float:
    """Return requests/s of one block."""
    asked = (prompts() * (REQUESTS // len(prompts()) + 1))[:REQUESTS]
    begun = time.perf_counter()
    server.generate(asked)
    return REQUESTS / (time.perf_counter() - begun)


@contextlib.contextmanager
def awake(server: Server) -> Generator[None]:
    """Let a stopped server run for the block."""
    os.killpg(server.process.pid, signal.SIGCONT)
    try:
        yield
    finally:
        os.killpg(server.process.pid, signal.SIGSTOP)


def main(scratch: Path, rounds: int) -> None:
    """Measure."""
    environment = environments()[0]
    kinds = {"without": "none", "with": "sglang_fence", "without, again": "none"}
    with contextlib.ExitStack() as stack:
        servers: dict[str, Server] = {}
        for name, plugins in kinds.items():
            environ = {"SGLANG_PLUGINS": plugins}
            servers[name] = stack.enter_context(serve(environment, scratch / name, environ=environ, plugins=()))
            stack.callback(os.killpg, servers[name].process.pid, signal.SIGCONT)
            rate(servers[name])  # warms it up
            os.killpg(servers[name].process.pid, signal.SIGSTOP)
        ratios: dict[str, list[float]] = {name: [] for name in kinds}
        for number in range(rounds):
            rates: dict[str, float] = {}
            for name in list(kinds)[:: 1 if number % 2 else -1]:
                with awake(servers[name]):
                    rates[name] = rate(servers[name])
            for name, found in ratios.items():
                found.append(rates[name] / rates["without"])
            print({name: round(one, 1) for name, one in rates.items()}, flush=True)
    for name, found in ratios.items():
        print(f"{name}: median {statistics.median(found):.4f}, {min(found):.4f} to {max(found):.4f}, {rounds} rounds")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 12)
