"""What the barrier lets the probe measure: the moment of release is read before the host spends time on the barrier."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sglang_fence.contract import FallbackReason, ForwardMode, SharedReadEnds
from sglang_fence.device.simulated.costs import CostTable
from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.engine.observation import make_probe
from sglang_fence.fence.barrier import FencePolicy, WarBarrier
from sglang_fence.fence.events import EventPool
from sglang_fence.fence.publication import Mailbox, ReadDone
from sglang_fence.observe.observer import Observer
from sglang_fence.observe.sampling import Sampling

if TYPE_CHECKING:
    from sglang_fence.observe.record import StepRecord

DECODE = ForwardMode.DECODE


class Reader:
    """One runner."""

    def __init__(self, mailbox: Mailbox) -> None:
        self.last_shared_read_mailbox = mailbox
        self.mailboxes = (mailbox,)

    def is_last_shared_read_phase(self, mode: ForwardMode) -> bool:
        return mode is DECODE


class Times(Observer):
    """Slack and wait of each step."""

    def __init__(self) -> None:
        self.seen: list[tuple[float | None, float | None]] = []

    def step_finished(self, record: StepRecord) -> None:
        self.seen.append((record.slack_us, record.wait_us))


@pytest.mark.parametrize(
    ("ends", "times"),
    [
        # Reads end at 10, the forward at 110; the host reaches the wait at 60.
        (SharedReadEnds.IN_REPLAY, (100.0, 0.0)),
        (SharedReadEnds.UNKNOWN, (0.0, 50.0)),
    ],
)
def test_a_slow_barrier_takes_nothing_off_the_slack(ends: SharedReadEnds, times: tuple[float, float]) -> None:
    device = SimulatedDevice(CostTable(kernels={"read": 10, "compute": 100}, host={"barrier": 60}))
    forward, schedule = device.Stream("forward"), device.Stream("schedule")
    heard, pool = Times(), EventPool(device)
    probe = make_probe(device, [heard], Sampling(timing_every=1), forward, schedule)
    policy = FencePolicy(enabled=True, forced_coarse=False, why="test")
    mailbox, event = Mailbox(pool), device.Event()
    probe.step_started(0, DECODE, "native", 1, 1)
    probe.forward_started(forward)
    with device.stream(forward):
        device.launch("read", lambda: None)
        event.record()
        device.launch("compute", lambda: None)
    if ends is SharedReadEnds.UNKNOWN:
        mailbox.put(ReadDone(0, DECODE, ends, None, FallbackReason.BACKEND_UNKNOWN))
    else:
        mailbox.put(ReadDone(0, DECODE, ends, event, None))
    WarBarrier(device, schedule, policy, pool, probe).apply(0, Reader(mailbox), forward)
    device.synchronize()
    probe.idle()
    assert heard.seen == [times]
