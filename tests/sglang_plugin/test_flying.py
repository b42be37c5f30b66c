"""The flight recorder in a scheduler of SGLang's shape: what it keeps of a step, and what it knows of the device."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from sglang_fence.contract import FallbackReason, FenceKind
from sglang_fence.observe.flight.form import read
from sglang_fence.observe.flight.options import FlightOptions
from sglang_fence.observe.flight.recorder import FlightRecorder
from sglang_fence.observe.flight.ring import FlightRing
from sglang_fence.observe.flight.snapshot import progress_of, steps_of
from sglang_fence.observe.flight.watchdog import Watchdog
from sglang_fence.observe.standing import Facts
from sglang_fence.sglang_plugin.flying import rank_name
from sglang_fence.sglang_plugin.start import Started
from tests.sglang_plugin.scheduling import Border, Scheduler

if TYPE_CHECKING:
    from pathlib import Path


class OwnError(Exception):
    """Raised on purpose."""


class Flown:
    """A scheduler that overlaps, with a flight recorder's ring."""

    def __init__(self, border: Border | None = None) -> None:
        self.ring = FlightRing(16)
        self.scheduler = Scheduler(border=border, ring=self.ring)
        self.scheduler.watch.forward_stream = self.scheduler.forward_stream

    def decode(self, ends: str = "IN_REPLAY") -> object | None:
        """Run a decode; return what it published."""
        scheduler, published = self.scheduler, []

        def serve() -> None:
            scheduler.graph(scheduler.target, "DECODE", ends)
            published.append(scheduler.target.shared_read_done_event)

        scheduler.step("DECODE", serve)
        return published[0]


def test_a_fine_step_is_kept_with_the_event_that_the_wait_is_for() -> None:
    flown = Flown()
    events = [flown.decode() for _ in range(3)]
    found = steps_of(flown.ring.records, flown.scheduler.steps.probe.newest)
    assert [(facts.step, facts.fence, facts.record, facts.event) for facts in found] == [
        (number, FenceKind.FINE, number, id(event)) for number, event in enumerate(events)
    ]
    for facts in found:
        assert facts.launched_ns is not None
        assert facts.entered_ns is not None
        assert facts.issued_ns is not None
        assert facts.started_ns <= facts.launched_ns <= facts.entered_ns <= facts.issued_ns


def test_a_coarse_step_waits_for_no_event_though_one_was_published() -> None:
    flown = Flown(Border(forced_on=True))
    assert flown.decode() is not None
    (facts,) = steps_of(flown.ring.records, flown.scheduler.steps.probe.newest)
    assert (facts.fence, facts.reason, facts.event) == (FenceKind.COARSE, FallbackReason.FORCED, None)


def test_what_isnt_in_the_queue_of_results_is_in_hand() -> None:
    flown = Flown()
    scheduler = flown.scheduler
    progress = scheduler.steps.probe.progress
    seen: list[int | None] = []
    for _ in range(4):
        flown.decode()
        seen.append(progress_of(progress).in_hand)
        scheduler.last_batch = scheduler.cur_batch_for_debug
        scheduler.result_queue = [object()]  # this one's; the one before is processed
    assert seen == [None, None, 0, 1]
    scheduler.result_queue = []
    scheduler.idle()
    assert progress.in_hand == 3


def test_a_server_that_idles_is_not_stalled_and_one_that_doesnt_come_back_is() -> None:
    flown = Flown()
    watchdog = Watchdog(flown.scheduler.steps.probe, 10.0, 0.0)
    flown.decode()
    watchdog.look(0.0)
    busy = [watchdog.is_busy]
    flown.scheduler.idle()
    busy.append(watchdog.is_busy)
    assert busy == [True, False]
    flown.decode()
    assert [watchdog.look(float(now)) for now in (20, 25, 31, 40)] == [False, False, True, False]


def test_without_a_ring_nothing_is_kept() -> None:
    scheduler = Scheduler()
    scheduler.step("DECODE", partial(scheduler.graph, scheduler.target, "DECODE", "IN_REPLAY"))
    assert not scheduler.steps.probe.recording
    assert steps_of((), scheduler.steps.probe.newest)[0].event is None


@pytest.mark.parametrize(("error", "details"), [(OwnError("a secret prompt"), ["OwnError"]), (None, [])])
def test_an_error_that_ends_the_serving_is_dumped(error: Exception | None, details: list[str], tmp_path: Path) -> None:
    flown = Flown()
    flown.decode()
    probe = flown.scheduler.steps.probe
    recorder = FlightRecorder(probe, FlightOptions(folder=tmp_path), virtual=False)
    recorder.start()
    Started(probe, Facts(), [recorder.close], recorder).end(error)
    found = [read(path) for path in tmp_path.iterdir()]
    assert [(dump.detail or "").rpartition(".")[2] for dump in found] == details
    assert [len(dump.steps) for dump in found] == [1 for _ in details]


@pytest.mark.parametrize(
    ("labels", "name"),
    [
        ({"model_name": "m", "tp_rank": "3", "pp_rank": "1"}, "pp1-tp3"),
        ({"model_name": "m", "tp_rank": "0", "pp_rank": "0", "dp_rank": "2"}, "dp2-pp0-tp0"),
    ],
)
def test_a_rank_is_named_by_all_that_tells_it_apart(labels: dict[str, str], name: str) -> None:
    assert rank_name(labels) == name
