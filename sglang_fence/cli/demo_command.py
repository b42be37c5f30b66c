"""``sglang-fence demo``: a server whose fence goes wrong and right again, for dashboards and alerts."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Annotated

import typer

from sglang_fence.demo.page import Page
from sglang_fence.demo.rank import Rank
from sglang_fence.demo.scenario import Phase, Scenario, phases_at

PAUSE_S = 0.1
"""Between two rounds: a demonstration leaves the machine to others."""


def demo(
    *,
    speed: Annotated[
        float, typer.Option(help="How many times as fast; 1 takes an hour and is made for the rules.")
    ] = 1.0,
    ranks: Annotated[int, typer.Option(min=1, max=64, help="Ranks of the server.")] = 1,
    metrics_port: Annotated[int, typer.Option(help="Serve /metrics here; 0: any that is free.")] = 9400,
    host: Annotated[str, typer.Option(help="Address to serve on; 0.0.0.0 in a container.")] = "127.0.0.1",
    speculative: Annotated[str, typer.Option(help="Speculative algorithm; eagle is coarse in every round.")] = "none",
    repeat: Annotated[bool, typer.Option("--repeat", help="Begin again until Ctrl-C.")] = False,
) -> None:
    """Serve load on the simulated device: fine, then UNKNOWN fallbacks, then forced coarse, then fine again.

    What it serves is real, and needs no GPU; point Prometheus at its port.
    """
    phases = phases_at(speed)
    served = [
        Rank({"model_name": "demo", "tp_rank": str(rank), "pp_rank": "0"}, speculative=speculative)
        for rank in range(ranks)
    ]
    page = Page(served, host, metrics_port)
    typer.echo(f"metrics: http://{host}:{page.port}/metrics", err=True)
    ended = threading.Event()
    scenario = Scenario(served, phases, time.monotonic, lambda: ended.wait(PAUSE_S), _announce)
    with suppress(KeyboardInterrupt):
        while scenario.play() and repeat:
            pass
    page.close()


def _announce(phase: Phase) -> None:
    typer.echo(f"{phase.name}: {phase.text}, for {phase.seconds:.0f} s", err=True)
