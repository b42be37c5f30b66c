"""R6: the mailbox keeps the newest publication, and the barrier takes it only for this very step's last phase."""

from __future__ import annotations

import pytest

from sglang_fence.contract import FallbackReason, FenceKind, ForwardMode, SharedReadEnds
from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.fence.barrier import FencePolicy, Verdict, judge
from sglang_fence.fence.events import EventPool
from sglang_fence.fence.publication import Mailbox, Publisher, ReadDone

DECODE = ForwardMode.DECODE
FINE = FencePolicy(enabled=True, forced_coarse=False, why="test")
FORCED = FencePolicy(enabled=True, forced_coarse=True, why="test")
OFF = FencePolicy(enabled=False, forced_coarse=False, why="test")


class Rig:
    """A mailbox and who publishes into it."""

    def __init__(self) -> None:
        self.pool = EventPool(SimulatedDevice())
        self.mailbox = Mailbox(self.pool)
        self.publisher = Publisher(self.mailbox, self.pool)


@pytest.fixture
def rig() -> Rig:
    """Make one."""
    return Rig()


def test_a_later_phase_replaces_an_earlier_one_whose_event_comes_back(rig: Rig) -> None:
    first = rig.publisher.pre_replay(0, ForwardMode.TARGET_VERIFY)
    second = rig.publisher.post_replay(0, ForwardMode.DRAFT_EXTEND)
    assert first.event is not second.event
    assert rig.pool.lent == 1
    assert rig.mailbox.take() is second
    assert rig.pool.take() is first.event


def test_an_unknown_replaces_an_event(rig: Rig) -> None:
    rig.publisher.pre_replay(0, ForwardMode.TARGET_VERIFY)
    unknown = rig.publisher.unknown(0, ForwardMode.DRAFT_EXTEND, FallbackReason.BACKEND_UNKNOWN)
    assert rig.pool.lent == 0
    assert rig.mailbox.take() is unknown


def test_taking_empties_and_peeking_does_not(rig: Rig) -> None:
    done = rig.publisher.post_replay(0, DECODE)
    assert rig.mailbox.peek() is done
    assert rig.mailbox.take() is done
    assert rig.mailbox.take() is None


def test_taking_leaves_the_event_lent_until_the_wait_is_issued(rig: Rig) -> None:
    done = rig.publisher.post_replay(0, DECODE)
    rig.mailbox.take()
    assert rig.pool.lent == 1
    assert rig.pool.take() is not done.event


def publication(reason: FallbackReason | None = None, step: int = 5) -> ReadDone:
    if reason is not None:
        return ReadDone(step, DECODE, SharedReadEnds.UNKNOWN, None, reason)
    return ReadDone(step, DECODE, SharedReadEnds.IN_REPLAY, SimulatedDevice().Event(), None)


def decided(verdict: Verdict) -> tuple[FenceKind, FallbackReason | None]:
    return verdict.kind, verdict.reason


def test_the_steps_own_last_phase_is_fine() -> None:
    assert decided(judge(5, publication(), last_phase=True, policy=FINE)) == (FenceKind.FINE, None)


@pytest.mark.parametrize("step", [4, 6])
def test_a_publication_of_another_step_is_stale(step: int) -> None:
    verdict = judge(5, publication(step=step), last_phase=True, policy=FINE)
    assert decided(verdict) == (FenceKind.COARSE, FallbackReason.STALE)


def test_a_silent_owner_has_a_reason_of_its_own() -> None:
    assert decided(judge(5, None, last_phase=False, policy=FINE)) == (FenceKind.COARSE, FallbackReason.OWNER_SILENT)


def test_another_phase_than_the_last_is_coarse() -> None:
    verdict = judge(5, publication(), last_phase=False, policy=FINE)
    assert decided(verdict) == (FenceKind.COARSE, FallbackReason.NOT_LAST_PHASE)


@pytest.mark.parametrize("reason", FallbackReason)
def test_an_unknown_brings_its_own_reason(reason: FallbackReason) -> None:
    assert decided(judge(5, publication(reason), last_phase=True, policy=FINE)) == (FenceKind.COARSE, reason)


def test_stale_comes_before_the_phase_and_the_phase_before_the_publications_own_reason() -> None:
    unknown = FallbackReason.BACKEND_UNKNOWN
    assert judge(5, publication(unknown, step=4), last_phase=False, policy=FINE).reason is FallbackReason.STALE
    assert judge(5, publication(unknown), last_phase=False, policy=FINE).reason is FallbackReason.NOT_LAST_PHASE


@pytest.mark.parametrize("done", [None, publication(), publication(step=4), publication(FallbackReason.IDLE)])
def test_forced_comes_before_every_other_reason(done: ReadDone | None) -> None:
    verdict = judge(5, done, last_phase=done is not None, policy=FORCED)
    assert decided(verdict) == (FenceKind.COARSE, FallbackReason.FORCED)
    assert verdict.done is done


@pytest.mark.parametrize("done", [None, publication(), publication(step=4), publication(FallbackReason.IDLE)])
def test_a_disabled_barrier_has_no_reason(done: ReadDone | None) -> None:
    assert decided(judge(5, done, last_phase=True, policy=OFF)) == (FenceKind.DISABLED, None)


def test_a_verdict_without_a_publication_resolves_to_unknown() -> None:
    assert judge(5, None, last_phase=False, policy=FINE).ends is SharedReadEnds.UNKNOWN
    assert judge(5, publication(), last_phase=True, policy=FINE).ends is SharedReadEnds.IN_REPLAY
