"""What a step of :class:`~sglang_fence.bench.overlap.OverlapLoop` takes on the simulated device, by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sglang_fence.bench.overlap import StepShape


@dataclass(frozen=True, slots=True)
class Moments:
    """Of one step, in µs since the start of the loop."""

    launch: float
    """H: the host enqueues the forward, having planned."""
    start: float
    """G."""
    reads_end: float
    """R of a fine step, C of a coarse one."""
    end: float
    """F."""
    wait: float
    """A."""
    released: float
    """What the wait waits for."""


def by_hand(shape: StepShape, barrier_us: float, fence: str, steps: int) -> list[Moments]:
    """Return the moments of each step: streams are free from some moment on, and the host waits for the step before.

    Args:
        shape: what the step's kernels take.
        barrier_us: what a barrier takes the host. All else takes it none.
        fence: ``fine`` or ``coarse``.
        steps: how many.
    """
    host = schedule_free = forward_free = 0.0
    found: list[Moments] = []
    for step in range(steps):
        launch = host
        schedule_free = max(schedule_free, host) + shape.schedule_us
        start = max(host, forward_free, schedule_free)
        reads_end = start + shape.reads_us
        end = forward_free = reads_end + shape.compute_us
        host += barrier_us
        wait = max(schedule_free, host)
        released = reads_end if fence == "fine" else end
        schedule_free = max(wait, released)
        found.append(Moments(launch, start, reads_end, end, wait, released))
        if step:
            host = max(host, found[step - 1].end)
    return found
