"""Device times of repeated steps: which calls of the driver they take, and what is made of the answers."""

from __future__ import annotations

import gc
import logging
import weakref
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from sglang_fence.observe.ledger import Cell, Route
from sglang_fence.observe.quick_times import QuickTimes
from sglang_fence.observe.sampling import START_EVERY, STARTED, Sampler, Sampling
from sglang_fence.sglang_plugin.repeating_compiled import compiled_class
from tests.device.driver.fake_driver import FakeDriver, build_fake_driver
from tests.sglang_plugin.scheduling import Batch, Runner, Scheduler, member
from tests.sglang_plugin.test_device_times import OnDevice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sglang_fence.sglang_plugin.likeness import Likeness

COMPILED = compiled_class()
pytestmark = pytest.mark.skipif(COMPILED is None, reason="the compiled part wasn't built")

FORWARD, SCHEDULE, OBSERVER = 1, 2, 3
MARKER = 9
PLACES = 16
COPY_US, BUSY_US = 0.5, 2.0


class Marker:
    """An event of PyTorch's."""

    cuda_event = MARKER


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> FakeDriver:
    return build_fake_driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def driver(built: FakeDriver) -> FakeDriver:
    built.reset()
    return built


class Timed:
    """A scheduler whose repeated steps are timed, each ``every``-th of them."""

    def __init__(self, driver: FakeDriver, every: int = 1, due: int = 1 << 40, *, in_place: bool = True) -> None:
        self.scheduler = Scheduler(repeating=COMPILED)
        self.scheduler.result_queue, self.scheduler.last_batch = [object()], Batch(member("DECODE"))
        self.current = self.scheduler.steps.current
        self.times = QuickTimes(self.scheduler.ledger, self.scheduler.steps.probe.progress)
        self.events = tuple((100 + place, 200 + place, 300 + place) for place in range(PLACES))
        self.current.take_times(
            (FORWARD, SCHEDULE, OBSERVER),
            self.events,
            (COPY_US, BUSY_US),
            self._settle,
            self.times.fail,
            str(driver.path),
            in_place,
        )
        self.calls = 0
        self.handed_on = 0
        """Steps whose times weren't added up in place."""
        self.step()  # is looked at in full
        self.current.arm(self.current.like, due, every)

    def _settle(self, found: list[tuple[Any, int, float, float]], newest: int) -> None:
        self.calls += 1
        self.handed_on += len(found)
        self.times.settle(found, newest)

    def step(self, marker: Marker | None = None) -> None:
        """Decode; publish a ``marker``, or a new one."""
        runner: Runner = self.scheduler.target

        def serve() -> None:
            self.scheduler.graph(runner, "DECODE", "IN_REPLAY")
            runner.shared_read_done_event = marker or Marker()

        self.scheduler.step("DECODE", serve)

    @property
    def cell(self) -> Cell:
        """Where all steps are counted."""
        (cell,) = self.scheduler.ledger.cells.values()
        return cell


def reach(driver: FakeDriver, place: int, *, wait: float, released: float, end: float) -> None:
    driver.reach(100 + place, end)
    driver.reach(200 + place, released)
    driver.reach(300 + place, wait)


def test_a_step_takes_four_calls_in_their_order(driver: FakeDriver) -> None:
    timed = Timed(driver)
    timed.step()
    assert driver.calls == [
        ("record", 100, FORWARD),
        ("wait", OBSERVER, MARKER),
        ("record", 200, OBSERVER),
        ("record", 300, SCHEDULE),
    ]
    assert timed.current.pending == 1


@pytest.mark.parametrize("in_place", [True, False])
def test_slack_and_wait_are_differences_less_what_the_copy_is_late(driver: FakeDriver, *, in_place: bool) -> None:
    timed = Timed(driver, in_place=in_place)
    timed.step()
    timed.step()
    reach(driver, 0, wait=10.0, released=30.0, end=230.0)  # waited
    reach(driver, 1, wait=1050.0, released=1030.0, end=1230.0)  # the schedule stream was still busy
    assert timed.current.drain(8) == 2
    assert timed.cell.slack.sum_us == pytest.approx((200.0 + COPY_US) + (200.0 + BUSY_US), abs=0.01)
    assert timed.cell.wait.sum_us == pytest.approx(20.0 - COPY_US, abs=0.01)
    assert (timed.cell.slack.count, timed.cell.wait.count, timed.cell.steps) == (2, 2, 3)
    assert timed.scheduler.steps.probe.progress.timed == 2
    assert timed.handed_on == (0 if in_place else 2)


@pytest.mark.parametrize("recorded", [True, False])
def test_the_newest_step_that_was_read_is_noted_without_a_call_where_the_flight_is_recorded(
    driver: FakeDriver, *, recorded: bool
) -> None:
    timed = Timed(driver)
    progress = timed.scheduler.steps.probe.progress
    if recorded:
        timed.current.progress = progress
    for _ in range(3):
        timed.step()
    for place in range(2):
        reach(driver, place, wait=0.0, released=10.0, end=110.0)
    assert timed.current.drain(8) == 2
    assert (progress.timed, timed.calls) == (2, 0 if recorded else 1)
    reach(driver, 2, wait=0.0, released=40.0, end=30.0)  # a slack below zero, for the call to count
    assert timed.current.drain(8) == 1
    assert (progress.timed, timed.calls, timed.handed_on) == (3, 1 if recorded else 2, 1)


def test_a_wait_below_zero_counts_as_none(driver: FakeDriver) -> None:
    timed = Timed(driver)
    timed.step()
    reach(driver, 0, wait=50.0, released=40.0, end=60.0)
    timed.current.drain(8)
    assert (timed.cell.wait.counts[0], timed.cell.wait.sum_us) == (1, 0.0)
    assert timed.handed_on == 0


def test_a_step_is_added_up_where_it_was_counted_though_another_kind_is_known_by_now(driver: FakeDriver) -> None:
    timed = Timed(driver)
    timed.step()
    reach(driver, 0, wait=0.0, released=10.0, end=110.0)
    counted = timed.cell
    like: Any = timed.current.like
    other = SimpleNamespace(**{name: getattr(like, name) for name in [*like.__slots__, "ends"]})
    other.cell, other.route = Cell(), Route([])
    timed.current.arm(cast("Likeness", other))
    assert timed.current.drain(8) == 1
    assert (timed.handed_on, counted.slack.count, other.cell.slack.count) == (1, 1, 0)


def test_a_slack_below_zero_is_clamped_and_counted(driver: FakeDriver) -> None:
    timed = Timed(driver)
    timed.step()
    reach(driver, 0, wait=0.0, released=40.0, end=30.0)
    timed.current.drain(8)
    assert timed.cell.slack.sum_us == 0.0
    assert timed.scheduler.ledger.clamps == {"slack": 1}


def test_nothing_is_read_before_the_device_is_past_it_nor_behind_what_is_not(driver: FakeDriver) -> None:
    timed = Timed(driver)
    timed.step()
    timed.step()
    reach(driver, 1, wait=0.0, released=1.0, end=2.0)
    assert timed.current.drain(8) == 0
    reach(driver, 0, wait=0.0, released=1.0, end=2.0)
    assert timed.current.drain(8) == 2


@pytest.mark.parametrize("stream", [FORWARD, SCHEDULE])
def test_nothing_is_read_while_a_stream_captures(driver: FakeDriver, stream: int) -> None:
    timed = Timed(driver)
    timed.step()
    reach(driver, 0, wait=0.0, released=1.0, end=2.0)
    driver.capture(stream)
    assert timed.current.drain(8) == 0
    driver.capture(0)
    assert timed.current.drain(8) == 1


def test_steps_are_read_in_batches_as_they_come(driver: FakeDriver) -> None:
    timed = Timed(driver)
    for place in range(PLACES):
        reach(driver, place, wait=0.0, released=10.0, end=110.0)
    for _ in range(100):
        timed.step()
        assert timed.current.pending <= 9
    timed.scheduler.idle()
    assert timed.current.pending == 0
    assert timed.cell.slack.count == 100
    assert not timed.scheduler.ledger.health.unresolved


def test_a_device_that_is_far_behind_costs_the_oldest_steps_their_times(driver: FakeDriver) -> None:
    timed = Timed(driver)
    for _ in range(PLACES + 5):
        timed.step()
    timed.scheduler.idle()
    assert timed.scheduler.ledger.health.unresolved == {"in_flight": 5}
    timed.scheduler.steps.end()
    assert timed.scheduler.ledger.health.unresolved == {"in_flight": 5, "end": PLACES}
    assert timed.cell.steps == PLACES + 6


@pytest.mark.parametrize("every", [1, 3, 7])
def test_each_so_many_th_step_is_timed(driver: FakeDriver, every: int) -> None:
    timed = Timed(driver, every)
    for place in range(PLACES):
        reach(driver, place, wait=0.0, released=10.0, end=110.0)
    for _ in range(42):
        timed.step()
    timed.scheduler.idle()
    assert timed.cell.slack.count == sum(step % every == 0 for step in range(1, 43))


@pytest.mark.parametrize("when", ["recording", "reading"])
def test_a_driver_that_refuses_is_counted_and_said_once_and_steps_go_on(
    driver: FakeDriver, caplog: pytest.LogCaptureFixture, when: str
) -> None:
    timed = Timed(driver)
    timed.step()
    driver.fail("record", 719)
    driver.fail("elapsed", 719)
    with caplog.at_level(logging.ERROR):
        if when == "reading":
            timed.current.drain(8)
        for _ in range(5):
            timed.step()
    assert timed.cell.steps == 7
    assert timed.scheduler.ledger.health.errors["drain"] == 1
    assert len(caplog.records) == 1
    assert "719" in caplog.text
    assert not timed.current.times_taken


def test_coarse_steps_are_left_to_the_general_hooks_as_often_as_they_are_timed(driver: FakeDriver) -> None:
    scheduler = OnDevice(every=7, publishes=False, repeating=COMPILED)
    scheduler.result_queue, scheduler.last_batch = [object()], Batch(member("DECODE"))
    current: Any = scheduler.steps.current
    probe = scheduler.steps.probe
    current.take_times((FORWARD, SCHEDULE, OBSERVER), ((1, 2, 3),), (COPY_US, BUSY_US), print, print, str(driver.path))
    while current.like is None:
        scheduler.decode()
    assert current.like.coarse
    assert (current.due, current.timed_every) == (probe.due, 0)
    assert probe.due < probe.due_beyond_slack[0]


def test_a_marker_that_all_hangs_on_can_be_freed(driver: FakeDriver) -> None:
    timed, marker = Timed(driver), Marker()
    vars(marker)["current"] = timed.current
    timed.step(marker)
    freed = weakref.ref(marker)
    del timed, marker
    gc.collect()
    assert freed() is None


def test_each_marker_is_waited_for_by_its_own_handle(driver: FakeDriver) -> None:
    timed, one, other = Timed(driver), Marker(), Marker()
    vars(other)["cuda_event"] = MARKER + 1
    for marker in (one, one, other, one):
        timed.step(marker)
    waited = [call.second for call in driver.calls if call.name == "wait"]
    assert waited == [MARKER, MARKER, MARKER + 1, MARKER]


def test_a_marker_is_let_go_of_where_times_are_taken_anew(driver: FakeDriver) -> None:
    timed, marker = Timed(driver), Marker()
    timed.step(marker)
    freed = weakref.ref(marker)
    del marker
    assert freed() is not None  # it is asked for its handle once
    timed.current.take_times((FORWARD, SCHEDULE, OBSERVER), (), (COPY_US, BUSY_US), print, print, str(driver.path))
    assert freed() is None


def test_what_was_published_is_no_event_of_the_device(driver: FakeDriver) -> None:
    timed = Timed(driver)
    runner = timed.scheduler.target
    timed.scheduler.step("DECODE", lambda: timed.scheduler.graph(runner, "DECODE", "IN_REPLAY"))
    assert timed.cell.steps == 2
    assert timed.scheduler.ledger.health.errors["drain"] == 1


def test_events_and_streams_that_are_none_are_refused(driver: FakeDriver) -> None:
    made: Any = COMPILED
    path = str(driver.path)
    for streams, events, error in (
        ((1, 2), (), TypeError),
        ((1, 2, 3), ((1, 2),), TypeError),
        ((1, 2, "x"), (), TypeError),
        ((1, 2, 3), ((1, 2, None),), TypeError),
    ):
        with pytest.raises(error):
            made({}, 0).take_times(streams, events, (0.0, 0.0), print, print, path)
    with pytest.raises(OSError, match="can't be loaded"):
        made({}, 0).take_times((1, 2, 3), (), (0.0, 0.0), print, print, "libno.so.7")
    with pytest.raises(OSError, match="lacks a function"):
        made({}, 0).take_times((1, 2, 3), (), (0.0, 0.0), print, print, "libm.so.6")
    with pytest.raises(ValueError, match="no times"):
        made({}, 0).arm(None, 0, 1)


def steps_in_full(every: int) -> Iterator[int]:
    """Yield the steps that are left to the general hooks, up to 400."""
    sampler = Sampler(Sampling(timing_every=every), START_EVERY)
    step = 0
    while (step := sampler.next_start(step)) < 400:
        yield step


@pytest.mark.parametrize("every", [1, 2, 7, 31, 32, 101])
def test_starts_and_the_steps_before_them_are_left_to_the_general_hooks(every: int) -> None:
    sampler = Sampler(Sampling(timing_every=every), START_EVERY)
    starting = [step for step in range(1, 400) if sampler.asks(step) == STARTED]
    assert starting
    wanted = {step for one in starting for step in (one - 1, one)}
    assert {step for step in steps_in_full(every) if step < 399} == {step for step in wanted if 0 < step < 399}
