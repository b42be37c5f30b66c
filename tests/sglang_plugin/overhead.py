"""What the plugin costs a server on a CPU: two servers, with and without, asked for blocks in turn.

    SGLANG_FENCE_TEST_ENVS=ENV python3 -m tests.sglang_plugin.overhead SCRATCH [ROUNDS]

Prints the ratio of requests/s, with to without: its median, and its smallest and largest.
"""

# ruff: noqa: T201 - it prints

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

from tests.sglang_plugin.controls import prompts
from tests.sglang_plugin.serving import Server, environments, serve

REQUESTS = 200


def rate(server: Server) -> float:
    """Return requests/s of one block."""
    asked = (prompts() * (REQUESTS // len(prompts()) + 1))[:REQUESTS]
    begun = time.perf_counter()
    server.generate(asked)
    return REQUESTS / (time.perf_counter() - begun)


def main(scratch: Path, rounds: int) -> None:
    """Measure."""
    environment = environments()[0]
    none = {"SGLANG_PLUGINS": "none"}
    with (
        serve(environment, scratch / "with", plugins=()) as observed,
        serve(environment, scratch / "without", environ=none, plugins=()) as plain,
    ):
        for server in (observed, plain):
            rate(server)  # warms it up
        ratios: list[float] = []
        for number in range(rounds):
            pair = [observed, plain] if number % 2 else [plain, observed]
            rates = {server.url: rate(server) for server in pair}
            ratios.append(rates[observed.url] / rates[plain.url])
            print(f"{rates[observed.url]:8.1f} {rates[plain.url]:8.1f}  {ratios[-1]:.4f}", flush=True)
    print(f"ratio: median {statistics.median(ratios):.4f}, {min(ratios):.4f} to {max(ratios):.4f}, {rounds} rounds")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 12)
