"""Device times of repeated steps: the events that the compiled part records.

Only slack and wait of a fine step are taken there. A step whose forward's start is timed as well, and the one before
it, at whose end the gap begins, are left to the general hooks: see :attr:`~.choosing.Choosing.due_beyond_slack`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.device.cuda_timing import DRIVER_LIBRARY, CudaObserverStream, handle_of
from sglang_fence.observe.quick_times import QuickTimes, make_events

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
    if not current.compiled or not isinstance(times.observer, CudaObserverStream):
        return None
    events = make_events(times.device)
    if any(handle_of(event) is None for row in events for event in row):
        return None
    repeated = QuickTimes(ledger, progress, events)
    repeated.take(current, times, forward, DRIVER_LIBRARY)
    return repeated
