"""The watchdog barks once a stall, and never while nothing is under way. Time is told to it, so none passes here."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_fence.contract import FallbackReason, FenceKind, ForwardMode, SharedReadEnds
from sglang_fence.errors import ConfigError
from sglang_fence.observe.flight.options import FlightOptions
from sglang_fence.observe.flight.ring import FlightRing
from sglang_fence.observe.flight.watchdog import LOOKS, Watchdog
from sglang_fence.observe.ledger import Ledger
from sglang_fence.observe.observer import Observers
from sglang_fence.observe.probe import StepProbe

TOO_LONG_S = 8.0


class Fine:
    """A verdict."""

    kind = FenceKind.FINE
    reason: FallbackReason | None = None
    published: tuple[SharedReadEnds, int] | None = (SharedReadEnds.IN_REPLAY, 3)


class Watched:
    """A probe, a clock of its own, and the watchdog."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.probe = StepProbe(Observers([Ledger()]), ring=FlightRing(4), now=self._tick)
        self.now_s = 0.0
        self.watchdog = Watchdog(self.probe, TOO_LONG_S, 0.0)
        self.steps = 0
        self.barks = 0

    def _tick(self) -> int:
        self.now_ns += 1
        return self.now_ns

    def start(self) -> None:
        self.probe.step_started(self.steps, ForwardMode.DECODE, "native", 8, 8)
        self.steps += 1

    def fence(self) -> None:
        self.probe.at_barrier(Fine(), object())
        self.probe.after_wait(Fine())

    def step(self) -> None:
        self.start()
        self.fence()

    def finish(self) -> None:
        self.probe.progress.in_hand = self.steps - 1

    def wait(self, seconds: float) -> int:
        """Let time pass, with looks as often as the recorder's thread looks; return how often it barked."""
        before, until = self.barks, self.now_s + seconds
        while self.now_s < until:
            self.now_s += self.watchdog.interval_s
            self.barks += self.watchdog.look(self.now_s)
        return self.barks - before


def test_before_the_first_step_nothing_stalls() -> None:
    assert Watched().wait(100) == 0


def test_a_barrier_that_stays_unreleased_is_one_stall() -> None:
    watched = Watched()
    watched.step()
    assert watched.wait(TOO_LONG_S - 1) == 0
    assert watched.wait(3) == 1
    assert watched.wait(1000) == 0


def test_a_step_that_doesnt_come_to_its_barrier_stalls_as_well() -> None:
    watched = Watched()
    watched.step()
    watched.finish()
    watched.start()
    assert watched.wait(TOO_LONG_S + 2) == 1


def test_each_move_within_a_step_begins_the_time_anew() -> None:
    watched = Watched()
    watched.start()
    assert watched.wait(TOO_LONG_S - 2) == 0
    watched.probe.launched()
    assert watched.wait(TOO_LONG_S - 2) == 0
    watched.probe.at_barrier(Fine(), object())
    assert watched.wait(TOO_LONG_S - 2) == 0
    watched.probe.after_wait(Fine())
    assert watched.wait(TOO_LONG_S - 2) == 0
    watched.probe.progress.awaited = 0
    assert watched.wait(TOO_LONG_S - 2) == 0
    assert watched.wait(4) == 1


def test_idling_is_no_stall() -> None:
    watched = Watched()
    watched.step()
    watched.finish()
    assert watched.wait(1000) == 0
    watched.step()
    watched.probe.flush()
    assert watched.wait(1000) == 0


def test_times_that_were_read_show_that_a_step_is_over() -> None:
    watched = Watched()
    watched.step()
    watched.probe.progress.timed = 0
    assert watched.wait(1000) == 0


def test_a_host_that_waits_for_results_is_stalled_whatever_came_after() -> None:
    watched = Watched()
    watched.step()
    watched.step()
    watched.finish()
    watched.probe.progress.awaited = 0
    assert watched.wait(TOO_LONG_S + 2) == 1


@given(st.lists(st.sampled_from(["step", "finish", "short", "long"]), max_size=30))
def test_it_barks_once_for_each_stall_and_for_nothing_else(moves: list[str]) -> None:
    watched, busy, told = Watched(), False, True
    for move in moves:
        if move == "step":
            watched.step()
            busy, told = True, False
        elif move == "finish":
            watched.finish()
            busy = False
        elif move == "short":
            watched.step()
            busy, told = True, False
            assert watched.wait(TOO_LONG_S / 2) == 0
        else:
            expected = busy and not told
            assert watched.wait(3 * TOO_LONG_S) == int(expected)
            told = told or expected


def test_it_looks_often_enough_for_its_time_and_no_more_than_it_needs() -> None:
    probe = Watched().probe
    assert Watchdog(probe, 0.8, 0).interval_s == pytest.approx(0.8 / LOOKS)
    assert Watchdog(probe, 600, 0).interval_s == 1.0


@pytest.mark.parametrize("seconds", [float("nan"), -1.0, 0.01, 1e9])
def test_times_that_cant_be_are_refused(seconds: float) -> None:
    with pytest.raises(ConfigError, match=r"give 0\.1 to 1e\+06, or 0 for none"):
        FlightOptions(watchdog_s=seconds)


def test_a_watchdog_without_a_recorder_is_refused() -> None:
    with pytest.raises(ConfigError, match="nothing to write"):
        FlightOptions(steps=0, watchdog_s=1.0)
