"""R3: *who* owns the step's last shared read is the algorithm's to say, *where* it ends the backend's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sglang_fence.contract import FallbackReason, FenceKind, ForwardMode, SharedReadEnds
from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.fence.barrier import FencePolicy, WarBarrier
from sglang_fence.fence.events import EventPool
from sglang_fence.fence.publication import Mailbox, Publisher
from sglang_fence.observe.observer import Observers
from sglang_fence.observe.probe import StepProbe

if TYPE_CHECKING:
    from collections.abc import Iterable

FINE = FencePolicy(enabled=True, forced_coarse=False, why="test")


class TwoRunners:
    """A draft and a target model; the draft's extend is the last phase that reads."""

    def __init__(self, pool: EventPool, owner: str) -> None:
        self.boxes = {"target": Mailbox(pool), "draft": Mailbox(pool)}
        self.publishers = {name: Publisher(box, pool) for name, box in self.boxes.items()}
        self.owner = owner
        self.asked: list[ForwardMode] = []

    @property
    def last_shared_read_mailbox(self) -> Mailbox:
        return self.boxes[self.owner]

    @property
    def mailboxes(self) -> Iterable[Mailbox]:
        return self.boxes.values()

    def is_last_shared_read_phase(self, mode: ForwardMode) -> bool:
        self.asked.append(mode)
        return mode is ForwardMode.DRAFT_EXTEND


class Rig:
    """A barrier over two runners."""

    def __init__(self, owner: str = "draft") -> None:
        self.device = SimulatedDevice()
        self.forward = self.device.Stream("forward")
        self.pool = EventPool(self.device)
        self.reader = TwoRunners(self.pool, owner)
        self.target, self.draft = (self.reader.publishers[name] for name in ("target", "draft"))
        schedule, probe = self.device.Stream("schedule"), StepProbe(Observers())
        self.barrier = WarBarrier(self.device, schedule, FINE, self.pool, probe)


@pytest.fixture
def rig() -> Rig:
    """Make one whose draft runner owns the last read."""
    return Rig()


def test_the_owners_publication_counts_and_no_other(rig: Rig) -> None:
    rig.target.post_replay(0, ForwardMode.TARGET_VERIFY)
    done = rig.draft.pre_replay(0, ForwardMode.DRAFT_EXTEND)
    verdict = rig.barrier.apply(0, rig.reader, rig.forward)
    assert (verdict.kind, verdict.done) == (FenceKind.FINE, done)
    assert verdict.ends is SharedReadEnds.PRE_REPLAY


def test_a_silent_owner_makes_the_step_coarse_whatever_others_published(rig: Rig) -> None:
    rig.target.pre_replay(0, ForwardMode.TARGET_VERIFY)
    verdict = rig.barrier.apply(0, rig.reader, rig.forward)
    assert (verdict.kind, verdict.reason) == (FenceKind.COARSE, FallbackReason.OWNER_SILENT)
    assert rig.reader.asked == []


def test_a_phase_after_which_others_read_makes_the_step_coarse() -> None:
    rig = Rig(owner="target")
    rig.target.pre_replay(0, ForwardMode.TARGET_VERIFY)
    verdict = rig.barrier.apply(0, rig.reader, rig.forward)
    assert (verdict.kind, verdict.reason) == (FenceKind.COARSE, FallbackReason.NOT_LAST_PHASE)
    assert rig.reader.asked == [ForwardMode.TARGET_VERIFY]


def test_every_runners_mailbox_is_emptied_and_every_event_comes_back(rig: Rig) -> None:
    rig.target.post_replay(0, ForwardMode.TARGET_VERIFY)
    rig.draft.post_replay(0, ForwardMode.DRAFT_EXTEND)
    assert rig.pool.lent == 2
    rig.barrier.apply(0, rig.reader, rig.forward)
    assert [box.peek() for box in rig.reader.mailboxes] == [None, None]
    assert rig.pool.lent == 0
