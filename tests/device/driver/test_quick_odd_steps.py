"""Quick steps in odd orders: what is lent, told and raised stays as it should, whatever a step turns out to be."""

# ruff: noqa: ANN401 - what stands in for torch's objects has no type of theirs

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from sglang_fence import native
from sglang_fence.contract import FenceKind
from sglang_fence.observe.record import NO_STEP
from sglang_fence.observe.sampling import Sampling
from tests.device.driver.test_moments import CLOCK, driver
from tests.device.driver.test_quick_steps import DECODE, IN, NATIVE, PHASES, Served, Verdict

if TYPE_CHECKING:
    from sglang_fence.observe.quickening import Quickening
    from tests.device.driver.fake_driver import FakeDriver

__all__ = ["driver"]

pytestmark = pytest.mark.skipif(not native.part(native.QUICK).usable, reason="the compiled part can't be used")

PLACES = 16
FORWARD_US = 60.0


def quick_of(served: Served) -> Quickening:
    quick = served.probe._quick
    assert quick is not None
    return quick


def test_no_end_is_lent_that_an_older_step_is_still_to_be_read_from(driver: FakeDriver) -> None:
    served = Served(driver, Sampling(timing_every=1), quick=True, start_every=256)
    for _ in range(20):
        served.fine()
    while served.probe.drain() or quick_of(served).steps.pending:
        served.fine()  # at step 0 and 1, and where a batch is read, the general way's are read first
        served.probe.drain()
    served.device.is_capturing = lambda: True
    while quick_of(served).steps.pending < PLACES:
        served.fine()
    served.coarse()  # a quick step to begin with, whose end was lent and is recorded
    served.device.is_capturing = lambda: False
    served.flush()
    fine = next(cell for kind, cell in served.summary.cells.items() if kind.fence is FenceKind.FINE)
    assert fine.slack.sum_us / fine.slack.count < FORWARD_US
    assert served.probe.health.unresolved["in_flight"] == 1


def test_what_a_step_that_went_the_general_way_left_is_put_right_by_the_next(driver: FakeDriver) -> None:
    served = Served(driver, Sampling(timing_every=5), quick=True, recorded=True, start_every=500)
    while served.step < 19:
        served.fine()
    served.unpublished()  # step 19 isn't timed: what comes next is still compared with what was there before it
    probe = served.probe
    probe.step_started(served.step, DECODE, NATIVE, 3, 7)
    assert quick_of(served).steps.repeats
    assert probe.timing
    assert probe._record.step == NO_STEP  # so that nothing is written into the record of step 19


def test_a_publication_s_number_need_be_none(driver: FakeDriver) -> None:
    served = Served(driver, Sampling(timing_every=0), quick=True, recorded=True)
    for number in (0, 1 << 70, "no number", 3):
        published: Any = (IN, number)
        served.run(Verdict(FenceKind.FINE, None, published), DECODE, NATIVE, [PHASES[DECODE, IN]])
    assert sum(cell.steps for cell in served.summary.cells.values()) == 4


class Interrupted:
    """A verdict at which a signal's handler interrupts the first look."""

    kind, reason = FenceKind.FINE, None

    def __init__(self) -> None:
        self._looked = False

    @property
    def published(self) -> Any:
        if not self._looked:
            self._looked = True
            raise KeyboardInterrupt
        return IN, 3


def test_a_signal_s_exception_is_raised(driver: FakeDriver) -> None:
    served = Served(driver, Sampling(timing_every=0), quick=True)
    for _ in range(3):
        served.fine()
    verdict: Any = Interrupted()
    served.probe.step_started(served.step, DECODE, NATIVE, 3, 7)
    served.probe.resolved(PHASES[DECODE, IN])
    with pytest.raises(KeyboardInterrupt):
        served.probe.after_wait(verdict)
    served.step += 1
    served.fine()  # and it is raised once
    assert sum(cell.steps for cell in served.summary.cells.values()) == 4


def test_what_is_no_number_of_a_step_goes_the_general_way(driver: FakeDriver) -> None:
    served = Served(driver, Sampling(timing_every=0), quick=True, recorded=True)
    steps = quick_of(served).steps

    class Number:
        """Arms with nothing when it is asked."""

        def __index__(self) -> int:
            steps.arm(None)
            return 7

    for _ in range(3):
        served.fine()
    odd: Any = Number()
    for sizes in ((odd, 7), (3, odd)):
        served.probe.step_started(served.step, DECODE, NATIVE, *sizes)
        assert not steps.repeats


@pytest.mark.parametrize("quick", [True, False])
def test_a_step_of_whose_forward_nobody_was_told_has_no_end(driver: FakeDriver, *, quick: bool) -> None:
    """As where SGLang doesn't overlap: its forward's stream isn't known, and it meets no barrier."""
    served = Served(driver, Sampling(timing_every=1), quick=quick)
    probe = served.probe
    for step in range(3):
        probe.step_started(step, DECODE, NATIVE, 3, 7)
        assert probe.timing
        probe.resolved(PHASES[DECODE, IN])
        probe.no_barrier()
    probe.flush()
    assert [cell.steps for cell in served.summary.cells.values()] == [3]
    assert not [call for call in driver.calls if call.name == "record" and call.second != CLOCK]
