"""Records that the host makes too late, on captures made by hand of a device and a host that are both known."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from sglang_fence.analyze.report import analyse
from sglang_fence.analyze.tables import TABLES, WAITS
from sglang_fence.contract import FenceKind
from tests.analyze.conftest import FORWARD, SCHEDULE, THREAD
from tests.analyze.making.compare import WARM_UP, compare
from tests.analyze.making.lateness import IN_TIME, LATE, UNSURE, Calibration, Pair, lateness
from tests.analyze.making.witnessing import witnessed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.analyze.conftest import MadeCapture

OBSERVER, WITNESS, BUSY, LATE_STREAM = 14, 21, 25, 27
STEPS, PERIOD_NS = 60, 10_000_000
WITNESS_LATE, RECORD_LATE, COPY_LATE = 1_100, 4_000, 3_300
"""In ns: how late a kernel starts behind a record, an event reads behind its call, and a copy behind the marker."""

READS_END, MARKER, NEXT_NODE, FORWARD_END = 20_000, 25_000, 220_000, 500_000
"""Of each step, from when its graph begins."""

CALL, BETWEEN = 3_000, 11_000
"""How long a call of the host takes, and from the beginning of one to that of the next."""

AHEAD, BEHIND, FAR_BEHIND, AT_THE_MARKER = -8_800_000, 300_000, 600_000, 100_000
"""When the host records a step's end, from when the graph begins. It is ahead while the forward before still runs."""

TOLD = {
    "late_record_us": [(3_000 + BETWEEN + RECORD_LATE) / 1e3] * 10,
    "offsets": {"marker_copy_us": COPY_LATE / 1e3, "marker_copy_busy_us": COPY_LATE / 1e3},
}


class Host:
    """Makes calls one after the other, and keeps them in the capture."""

    def __init__(self, made: MadeCapture) -> None:
        self.made = made
        self.now = 0
        self.moments: dict[int, int] = {}
        """When the device reached what a call recorded."""

    def called(self) -> int:
        """Trace the call that was made last, and return when it began."""
        start, self.now = self.now, self.now + BETWEEN
        self.made.rows["CUPTI_ACTIVITY_KIND_RUNTIME"].append((start, THREAD, self.made.calls, 1))
        return start


def calibrate(made: MadeCapture, host: Host) -> None:
    for at in range(0, 1_000_000, 100_000):
        made.work(BUSY, at, at + 5_000)
        made.wait(WITNESS, at + 100, made.record(BUSY))
        made.work(WITNESS, at + 5_000 + WITNESS_LATE, at + 5_100 + WITNESS_LATE)
    for at in range(1_000_000, 2_000_000, 100_000):
        made.work(BUSY, at, at + 5_000)
        made.wait(LATE_STREAM, at + 8_000, made.record(BUSY))
        made.record(LATE_STREAM)
        host.now = at + 8_000 + BETWEEN
        host.called()
    # The observer's own calibration, which stands behind another stream.
    made.work(FORWARD, 2_000_000, 2_005_000)
    made.wait(OBSERVER, 2_001_000, made.record(FORWARD))
    made.record(OBSERVER)


def serve(made: MadeCapture, host: Host, step: int, lag: int) -> dict[str, Any]:
    """Serve a step whose host is late by so much; return the row that an observer would have recorded."""
    zero = PERIOD_NS * (step + 2)
    host.now = zero + min(lag, 0) - 1_000_000
    prepares_long = lag < 0 and step % 3 == 0
    busy_until = zero + lag + 90_000 if prepares_long else host.now + 1_000
    made.work(SCHEDULE, host.now, busy_until)
    made.record(FORWARD)
    begun = host.called() + RECORD_LATE
    begun = max(begun, busy_until, zero - PERIOD_NS + FORWARD_END)
    call = made.replay(host.now, [(0, zero, zero + READS_END), (2, zero + NEXT_NODE, zero + FORWARD_END)])
    bound = made.record(FORWARD, call)
    host.now = zero + lag + step * 100  # no two steps alike
    made.name_range("barrier", host.now, host.now + 8 * BETWEEN, step)
    made.record(FORWARD)
    end = host.moments[made.calls] = max(zero + FORWARD_END, host.called() + RECORD_LATE)
    made.wait(OBSERVER, host.now, bound)
    host.called()
    made.record(OBSERVER)
    copied = host.moments[made.calls] = max(zero + MARKER + COPY_LATE, host.called() + RECORD_LATE)
    made.wait(WITNESS, host.now, bound)
    host.called()
    ran = max(zero + MARKER, host.now) + WITNESS_LATE
    made.work(WITNESS, ran, ran + 50)
    host.called()
    made.record(SCHEDULE)
    waited = host.moments[made.calls] = max(host.called() + RECORD_LATE, busy_until)
    made.wait(SCHEDULE, host.now, bound)
    made.name_range("barrier.fine", host.now, None, step)
    made.record(FORWARD)  # as the allocator does for memory that is freed
    released = copied - COPY_LATE  # which the observer takes off, whether or not the marker is what it waited for
    return {
        "step": step,
        "fence": "fine",
        "slack_us": max(0, end - released) / 1e3,
        "wait_us": max(0, released - waited) / 1e3,
        "forward_us": (end - begun) / 1e3,
    }


Compared = dict[str, Any]


@pytest.fixture
def compared(make: Callable[[], MadeCapture], tmp_path: Path) -> Callable[..., Compared]:
    """Make a capture whose host is late by so much, and compare it with what an observer would have recorded."""

    def of(
        lag: int,
        told: dict[str, Any] | None = TOLD,
        without: tuple[str, ...] = (),
        *,
        events: bool = False,
    ) -> Compared:
        made = make()
        host = Host(made)
        calibrate(made, host)
        rows = [serve(made, host, step, lag) for step in range(STEPS)]
        path = made.save(tmp_path / f"{len(list(tmp_path.iterdir()))}.sqlite", without)
        if "CUPTI_ACTIVITY_KIND_RUNTIME" not in without:
            with closing(sqlite3.connect(path)) as database:
                database.execute('ALTER TABLE CUPTI_ACTIVITY_KIND_RUNTIME ADD COLUMN "end"')
                database.execute('UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET "end" = start + ?', (CALL,))
                if events:
                    database.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_CUDA_EVENT ADD COLUMN timestamp DEFAULT 0")
                    database.executemany(
                        "UPDATE CUPTI_ACTIVITY_KIND_CUDA_EVENT SET timestamp = ? WHERE correlationId = ?",
                        [(moment, call) for call, moment in host.moments.items()],
                    )
                database.commit()
        return compare(path, {"steps": rows}, told)

    return of


def agrees(differs: dict[str, Any]) -> bool:
    return bool(differs["steps"] == STEPS - WARM_UP and differs["absolute_max"] < 0.01)


def test_a_host_that_is_ahead_records_all_in_time_and_nothing_needs_a_correction(
    compared: Callable[..., Compared],
) -> None:
    found = compared(AHEAD)
    late = found["lateness"]
    counted = {IN_TIME: STEPS - WARM_UP}
    assert late["end_recorded"] == late["copy_recorded"] == late["witness_launched"] == counted
    assert agrees(found["slack_observer_less_witness"])
    assert agrees(late["slack_observer_less_witness_when_all_in_time"])
    assert agrees(late["slack_corrected_for_late_records"])
    assert late["forward_end_behind_its_record_us"]["p50"] > -AHEAD / 1e3
    # The fence's own call comes behind the observer's record, which says when the schedule stream came to it.
    assert late["wait_observer_less_witness_when_all_in_time"]["median"] == (BETWEEN - RECORD_LATE) / 1e3
    assert agrees(late["wait_the_same_from_the_observers_call"])
    assert late["slack_corrected_where_end_in_time_and_copy_late"] is None
    assert agrees(late["forward_corrected_for_late_records"])


def test_a_copy_that_comes_late_is_told_from_an_end_that_does(compared: Callable[..., Compared]) -> None:
    found = compared(BEHIND)
    late = found["lateness"]
    assert late["end_recorded"] == {IN_TIME: STEPS - WARM_UP}
    assert late["copy_recorded"] == late["witness_launched"] == {LATE: STEPS - WARM_UP}
    # The witness is later still, by what the host does in between.
    off = (2 * BETWEEN + WITNESS_LATE - WITNESS_LATE - RECORD_LATE + COPY_LATE) / 1e3
    assert found["slack_observer_less_witness"]["median"] == pytest.approx(off)
    assert late["slack_corrected_for_late_end_only"]["median"] == pytest.approx(off)
    assert agrees(late["slack_corrected_for_late_records"])
    assert agrees(late["slack_corrected_where_end_in_time_and_copy_late"])
    assert agrees(late["forward_corrected_for_late_records"])
    assert late["slack_observer_less_witness_when_all_in_time"] is None
    assert late["copy_behind_marker_at_least_us"]["p1"] == (BEHIND + WARM_UP * 100 + 2 * BETWEEN - NEXT_NODE) / 1e3


def test_an_end_that_comes_late_is_corrected_too(compared: Callable[..., Compared]) -> None:
    late = compared(FAR_BEHIND)["lateness"]
    assert late["end_recorded"] == late["copy_recorded"] == {LATE: STEPS - WARM_UP}
    assert agrees(late["slack_corrected_for_late_records"])
    assert agrees(late["forward_corrected_for_late_records"])
    assert late["forward_end_behind_its_record_us"]["p99"] < 0


@pytest.mark.parametrize("lag", [AHEAD, BEHIND, FAR_BEHIND, AT_THE_MARKER])
def test_the_tools_own_reading_of_the_events_needs_no_correction(compared: Callable[..., Compared], lag: int) -> None:
    assert compared(lag)["lateness"]["slack_from_the_tools_own_events"] is None
    late = compared(lag, events=True)["lateness"]
    assert agrees(late["slack_from_the_tools_own_events"])
    assert agrees(late["wait_from_the_tools_own_events"])


def test_between_the_two_nodes_nobody_can_tell(compared: Callable[..., Compared]) -> None:
    late = compared(AT_THE_MARKER)["lateness"]
    assert late["copy_recorded"] == {UNSURE: STEPS - WARM_UP}
    assert late["slack_corrected_for_late_records"] is None


def test_without_a_calibration_nothing_is_corrected(compared: Callable[..., Compared]) -> None:
    found = compared(BEHIND, None)
    assert found["late_record_us"] is None
    assert found["lateness"]["copy_recorded"] == {LATE: STEPS - WARM_UP}
    assert found["lateness"]["slack_corrected_for_late_records"] is None
    short = {**TOLD, "late_record_us": [1.0]}
    assert compared(BEHIND, short)["late_record_us"] is None


def test_without_the_hosts_calls_the_waits_say_that_the_copy_is_late_and_by_how_much(
    compared: Callable[..., Compared],
) -> None:
    late = compared(BEHIND, TOLD, ("CUPTI_ACTIVITY_KIND_RUNTIME",))["lateness"]
    assert late["calls_traced"] == 0.0
    assert late["copy_recorded"] == {LATE: STEPS - WARM_UP}
    assert late["end_recorded"] == {IN_TIME: STEPS - WARM_UP}
    assert agrees(late["slack_corrected_for_late_records"])
    assert late["slack_from_the_copys_call"]["around_median_p99"] < 0.01


@pytest.mark.parametrize(("name", "ends"), [("full", {IN_TIME: 22, UNSURE: 1}), ("breakable", {UNSURE: 23})])
def test_on_an_h200_under_the_tool_every_copy_of_the_marker_came_late_and_the_full_graphs_ends_in_time(
    real: Callable[[str], Path],
    name: str,
    ends: dict[str, int],
) -> None:
    path = real(name)
    sight, row = witnessed(path), {"slack_us": 0.0, "wait_us": 0.0, "forward_us": None}
    pairs: list[Pair] = [
        (row, sight.steps[step.number], step)
        for step in analyse(path).steps
        if step.fence is FenceKind.FINE and step.number is not None
    ]
    found = lateness(pairs, Calibration.of(sight, {}))
    assert found["copy_recorded"] == {LATE: 23}
    assert found["end_recorded"] == ends


@pytest.mark.parametrize("table", [table.name for table in TABLES if table is not WAITS])
def test_a_table_that_is_missing_costs_an_answer_and_no_more(compared: Callable[..., Compared], table: str) -> None:
    found = compared(BEHIND, TOLD, (table,))
    assert found["steps"] in {0, STEPS - WARM_UP}
    assert json.dumps(found)
