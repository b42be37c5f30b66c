"""Device times of repeated steps: the events that the compiled part records.

Only slack and wait of a fine step are taken there. A step whose forward's start is timed as well, and the one before
it, at whose end the gap begins, are left to the general hooks: see :attr:`~.choosing.Choosing.due_beyond_slack`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from sglang_fence.device.cuda_timing import DRIVER_LIBRARY, CudaObserverStream, HandledEvent, handle_of
from sglang_fence.observe.quick_times import QuickTimes
from sglang_fence.observe.quickening import IN_FLIGHT

if TYPE_CHECKING:
    from sglang_fence.device.cuda import CudaStream
    from sglang_fence.observe.device_times import DeviceTimes
    from sglang_fence.observe.flight.progress import Progress
    from sglang_fence.observe.ledger import Ledger
    from sglang_fence.sglang_plugin.repeating import Repeating


def take_times(
    current: Repeating, times: DeviceTimes, forward: CudaStream, ledger: Ledger, progress: Progress
) -> QuickTimes | None:
    """Let repeated steps be timed, where the compiled part is there and the driver is known by name.

    Args:
        current: recognises them.
        times: the general hooks' streams and offsets.
        forward: the forward stream.
        ledger: where durations are added up.
        progress: what is known of the device.

    Raises:
        OSError: the driver's library lacks a function.
    """
    observer, schedule = times.observer, cast("CudaStream", times.schedule)
    if not current.compiled or not isinstance(observer, CudaObserverStream):
        return None
    made = [[times.device.timed_event() for _ in range(3)] for _ in range(IN_FLIGHT)]
    events = [(one, two, three) for one, two, three in made if handle_of(one) is not None]
    if not events:
        return None
    kept = cast("tuple[tuple[HandledEvent, HandledEvent, HandledEvent], ...]", tuple(events))
    repeated = QuickTimes(ledger, progress, kept)
    current.take_times(
        (forward.handle, schedule.handle, observer.handle),
        tuple(tuple(event.handle for event in row) for row in kept),
        (times.offsets.marker_copy_us, times.offsets.marker_copy_busy_us),
        repeated.settle,
        repeated.fail,
        DRIVER_LIBRARY,
    )
    return repeated
