"""``bench fence``: steps a second with the fence off, coarse and fine, by the length of a step's parts.

The loop is the overlap scheduler's order with the real graph, marker, publisher, mailbox and barrier; only the kernels,
and the host's preparation, are replaced by ones of known length (:mod:`sglang_fence.bench.overlap`).
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sglang_fence.bench.blocks import Measured, in_turns
from sglang_fence.bench.bounds import measure_parts
from sglang_fence.bench.fence_result import AGAIN, BASELINE, Cell, FenceResult
from sglang_fence.bench.machine import describe
from sglang_fence.bench.overlap import OverlapLoop, StepShape
from sglang_fence.bench.spinning import simulated
from sglang_fence.contract import SharedReadEnds
from sglang_fence.device.cuda_spinning import cuda_spinner

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sglang_fence.device.cuda_spinning import Spinner
    from sglang_fence.device.protocol import DeviceModule, Stream

READS_US, AFTER_US = 10.0, 10.0
"""Of each decode step: metadata preparation, and sampling with the copy of its tokens."""

VARIANTS = {
    BASELINE: ("off", SharedReadEnds.IN_REPLAY),
    AGAIN: ("off", SharedReadEnds.IN_REPLAY),
    "coarse": ("coarse", SharedReadEnds.IN_REPLAY),
    "fine POST": ("fine", SharedReadEnds.POST_REPLAY),
    "fine IN": ("fine", SharedReadEnds.IN_REPLAY),
    "fine PRE": ("fine", SharedReadEnds.PRE_REPLAY),
}
"""Name → fence and declared end. The first two are the same loop twice: what they differ by is noise."""

_LEAD = 4
"""Steps that fill the pipeline before a block's clock starts."""
_FEWEST, _MOST = 12, 10_000
"""Steps of a block."""
_CLOSER = 2
"""By so much a closer look has longer blocks, and more rounds."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """What is measured. Every decode length meets every preparation time.

    The closer look is at one decode length without any preparation by the host, by the schedule stream's work.
    """

    decode_us: Sequence[float]
    prepare_us: Sequence[float]
    schedule_us: float = 40.0
    closer_decode_us: float | None = None
    closer_schedule_us: Sequence[float] = ()
    rounds: int = 5
    block_us: float = 50_000.0
    """About how long a block lasts; one has 12 steps at least."""

    def shapes(self) -> list[tuple[StepShape, int]]:
        """Return each shape once, with the factor by which it is measured more closely; those with 2 come first."""
        found: dict[StepShape, int] = {}
        if self.closer_decode_us is not None:
            for schedule in self.closer_schedule_us:
                found[decode_step(self.closer_decode_us, 0.0, schedule)] = _CLOSER
        for prepare in self.prepare_us:
            for decode in self.decode_us:
                found.setdefault(decode_step(decode, prepare, self.schedule_us), 1)
        return list(found.items())


def decode_step(decode_us: float, prepare_us: float, schedule_us: float) -> StepShape:
    """Return a step that takes ``decode_us`` on the forward stream, metadata and sampling included."""
    return StepShape(
        reads_us=READS_US,
        compute_us=decode_us - READS_US - AFTER_US,
        after_us=AFTER_US,
        schedule_us=schedule_us,
        prepare_us=prepare_us,
    )


def measure(device: DeviceModule, sweep: Sweep, on_cell: Callable[[str], None] = lambda _: None) -> FenceResult:
    """Measure each shape of ``sweep`` behind each fence.

    Args:
        device: CUDA; or the simulated device, whose place one with the shape's costs takes.
        sweep: what is measured.
        on_cell: told of each shape before it is measured.
    """
    spinner: Spinner | None = None
    streams: tuple[Stream, Stream] | None = None
    if device.virtual_seconds() is None:
        spinner = cuda_spinner(device)
        streams = device.Stream("schedule"), device.Stream("forward")
    shapes, cells = sweep.shapes(), list[Cell]()
    for number, (shape, closer) in enumerate(shapes, 1):
        on_cell(f"{number} of {len(shapes)}: decode {shape.forward_us / 1e3:g} ms, host {shape.prepare_us / 1e3:g} ms")
        rounds, block_us = sweep.rounds * closer, sweep.block_us * closer
        if spinner is None or streams is None:
            virtual, made = simulated(shape)
            own = virtual.Stream("schedule"), virtual.Stream("forward")
            cells.append(_measure_shape(virtual, made, shape, own, rounds, block_us))
        else:
            cells.append(_measure_shape(device, spinner, shape, streams, rounds, block_us))
    settings = {"rounds": sweep.rounds, "block_ms": sweep.block_us / 1e3}
    return FenceResult(describe(device), settings, tuple(cells))


@dataclass(frozen=True, slots=True)
class _Block:
    steps_per_s: float
    host_us: float


def _measure_shape(
    device: DeviceModule,
    spinner: Spinner,
    shape: StepShape,
    streams: tuple[Stream, Stream],
    rounds: int,
    block_us: float,
) -> Cell:
    parts = measure_parts(device, spinner, shape, streams)
    steps = max(_FEWEST, min(_MOST, round(block_us / max(shape.forward_us, shape.prepare_us))))
    loops = {
        name: OverlapLoop(device, spinner, shape, fence, ends=ends, streams=streams)
        for name, (fence, ends) in VARIANTS.items()
    }
    rows = in_turns({name: _block(loop, steps) for name, loop in loops.items()}, rounds=rounds)
    host_us = statistics.median(row[BASELINE].host_us for row in rows)
    base = [row[BASELINE].steps_per_s for row in rows]
    variants = {name: Measured.of([row[name].steps_per_s for row in rows], base) for name in loops}
    return Cell(shape, steps, parts, host_us, variants)


def _block(loop: OverlapLoop, steps: int) -> Callable[[], _Block]:
    def block() -> _Block:
        busy: list[int] = []
        results: list[int] = []

        def on_step(busy_ns: int, results_ns: int) -> None:
            busy.append(busy_ns)
            results.append(results_ns)

        loop.run(_LEAD + steps, on_step)
        return _Block(
            steps_per_s=steps * 1e9 / (results[-1] - results[_LEAD - 1]),
            host_us=statistics.fmean(busy[_LEAD:]) / 1e3,
        )

    return block
