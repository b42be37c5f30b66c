"""How long a step of the overlap loop takes, from when streams and host are free: no device involved."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sglang_fence.bench.overlap import StepShape

BARRIER_US = 2.0
"""What a barrier takes the host on the simulated device; all else that isn't asked for takes it none."""


def released(shape: StepShape, fence: str, start: float) -> float:
    """Return when the schedule stream is let go behind a step whose forward begins at ``start``."""
    return {
        "off": 0.0,
        "PRE": start + shape.reads_us,
        "IN": start + shape.reads_us,
        "POST": start + shape.reads_us + shape.compute_us,
        "coarse": start + shape.forward_us,
    }[fence]


def period_us(shape: StepShape, fence: str, *, lead: int, steps: int) -> float:
    """Return the mean time from one step's end to the next, for ``steps`` steps behind the first ``lead``.

    The host prepares a step and launches it, applies the barrier, and then waits for the step before.
    """
    host = schedule_free = forward_free = 0.0
    ends: list[float] = []
    moments: list[float] = []
    for step in range(lead + steps):
        host += shape.prepare_us
        schedule_free = max(schedule_free, host) + shape.schedule_us
        start = max(host, forward_free, schedule_free)
        forward_free = start + shape.forward_us
        ends.append(forward_free)
        host += BARRIER_US
        schedule_free = max(schedule_free, host if fence == "off" else max(host, released(shape, fence, start)))
        if step:
            host = max(host, ends[step - 1])
        moments.append(host)
    return (moments[-1] - moments[lead - 1]) / steps
