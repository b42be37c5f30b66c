"""What observing costs a decode loop of about 0.25 ms a step: host time, the step's p99, steps a second."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from sglang_fence import native
from sglang_fence.bench.blocks import in_turns
from sglang_fence.bench.overlap import OverlapLoop, StepShape
from sglang_fence.bench.spinning import simulated
from sglang_fence.device.cuda_spinning import cuda_spinner
from sglang_fence.observe.exporting import ExportContext, make_exporter
from sglang_fence.observe.flight.ring import FlightRing
from sglang_fence.observe.sampling import Sampling
from sglang_fence.observe.summary import Summary, percentile

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from typing import Any

    from sglang_fence.device.cuda_spinning import Spinner
    from sglang_fence.device.protocol import DeviceModule
    from sglang_fence.observe.observer import Observer

STEPS = 2_000

FLYING = "default, flight recorder"
"""The variant with the flight recorder."""

INTERPRETED = "every step timed, without the compiled part"
"""The variant whose moments are taken by Python code; left out where there is no compiled part to do without."""


@dataclass(frozen=True, slots=True)
class Block:
    """One block of one variant."""

    host_us: float
    """Host time a step, mean; blocking left out."""
    host_p99_us: float
    step_p99_us: float
    """From one step's results in the host's hand to the next's."""
    steps_per_s: float
    own_us: float
    """Host time a step that the probe took by its own account."""


def variants(otlp: str | None) -> dict[str, Callable[[], tuple[list[Observer], Sampling]]]:
    """What is switched on, by name. The first has nothing on.

    Args:
        otlp: where traces go; None: the variant with traces is left out.
    """

    def everything() -> tuple[list[Observer], Sampling]:
        summary = Summary()
        context = ExportContext(ledger=summary, otlp=otlp)
        return [
            summary,
            make_exporter("nvtx", context),
            make_exporter("otel", context),
        ], Sampling(timing_every=1, trace_ratio=0.01)

    made: dict[str, Callable[[], tuple[list[Observer], Sampling]]] = {
        "nothing": lambda: ([], Sampling()),
        "counts alone": lambda: ([Summary()], Sampling(timing_every=0)),
        "default": lambda: ([Summary()], Sampling()),
        FLYING: lambda: ([Summary()], Sampling()),
        "every step timed": lambda: ([Summary()], Sampling(timing_every=1)),
    }
    if native.part(native.MOMENTS).usable:
        made[INTERPRETED] = made["every step timed"]
    if otlp is not None:
        made["every step timed, NVTX, 1 % traced"] = everything
    return made


@contextmanager
def blocks(
    device: DeviceModule, *, otlp: str | None, steps: int = STEPS
) -> Generator[Mapping[str, Callable[[], Block]]]:
    """Make a loop for each variant; each block runs ``steps`` steps of it. At the end, what observes them is ended."""
    shape = StepShape()
    spinner: Spinner
    interpreted: DeviceModule
    if device.virtual_seconds() is None:
        from sglang_fence.device.cuda import CudaDevice  # noqa: PLC0415 - where there is CUDA alone

        spinner, interpreted = cuda_spinner(device), CudaDevice(compiled=False)
    else:
        device, spinner = simulated(shape)
        interpreted = device
    streams = device.Stream("schedule"), device.Stream("forward")
    loops = {
        name: OverlapLoop(
            interpreted if name == INTERPRETED else device,
            spinner,
            shape,
            "fine",
            *make(),
            streams,
            ring=FlightRing() if name == FLYING else None,
        )
        for name, make in variants(otlp).items()
    }
    try:
        yield {name: _block(loop, steps) for name, loop in loops.items()}
    finally:
        for loop in loops.values():
            loop.probe.close()


def _block(loop: OverlapLoop, steps: int) -> Callable[[], Block]:
    def block() -> Block:
        host: list[int] = []
        results: list[int] = []

        def on_step(busy: int, results_ns: int) -> None:
            host.append(busy)
            results.append(results_ns)

        own = loop.probe.health.cost_ns.total()
        began = time.perf_counter_ns()
        loop.run(steps, on_step)
        wall = time.perf_counter_ns() - began
        periods = [float(after - before) for before, after in pairwise(results)]
        return Block(
            host_us=sum(host) / len(host) / 1e3,
            host_p99_us=(percentile([float(one) for one in host], 0.99) or 0.0) / 1e3,
            step_p99_us=(percentile(periods, 0.99) or 0.0) / 1e3,
            steps_per_s=steps / (wall / 1e9),
            own_us=(loop.probe.health.cost_ns.total() - own) / steps / 1e3,
        )

    return block


@dataclass(frozen=True, slots=True)
class Compared:
    """One variant over all rounds, each round against the same round of the variant with nothing on."""

    blocks: tuple[Block, ...]
    bases: tuple[Block, ...]

    def shares(self, figure: str) -> list[float]:
        """Return each round's figure over that with nothing on."""
        return [
            getattr(block, figure) / getattr(base, figure) for block, base in zip(self.blocks, self.bases, strict=True)
        ]

    def more(self, figure: str) -> list[float]:
        """Return by how much each round's figure is above that with nothing on."""
        return [
            getattr(block, figure) - getattr(base, figure) for block, base in zip(self.blocks, self.bases, strict=True)
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the figures."""
        return {
            "blocks": [asdict(block) for block in self.blocks],
            "steps_per_s_ratio": self.shares("steps_per_s"),
            "step_p99_ratio": self.shares("step_p99_us"),
            "host_us_more": self.more("host_us"),
        }


def compare(blocks: Mapping[str, Callable[[], Block]], *, rounds: int) -> dict[str, Compared]:
    """Run every variant once a round, in an order that turns; one round more is thrown away as warm-up."""
    rows, names = in_turns(blocks, rounds=rounds), list(blocks)
    bases = tuple(row[names[0]] for row in rows)
    return {name: Compared(tuple(row[name] for row in rows), bases) for name in names}
