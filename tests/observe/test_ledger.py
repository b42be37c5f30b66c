"""The ledger: every step once, in the bucket that takes it, whatever the sequence."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from math import inf, nextafter
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_fence.catalogue import DURATION_BUCKETS
from sglang_fence.contract import ForwardMode, SharedReadEnds
from sglang_fence.observe.ledger import BUCKETS, Durations, Ledger, StepKind, bucket_of
from sglang_fence.observe.record import Phase
from tests.exporters.prometheus.steps import COARSE, DURATIONS, FINE, TRACE_ID, Step, add, record_of, steps, trace_of

if TYPE_CHECKING:
    from collections.abc import Generator


def kind_of(step: Step) -> StepKind:
    return StepKind(
        step.mode, step.backend, step.declared, step.resolved, step.fence, step.reason, step.downgrade
    )  # fmt: skip


@given(st.lists(steps(), max_size=40))
def test_every_step_is_counted_once_under_its_kind(taken: list[Step]) -> None:
    ledger = Ledger()
    add(ledger, taken)
    assert {kind: cell.steps for kind, cell in ledger.cells.items()} == Counter(map(kind_of, taken))
    assert all(isinstance(kind, StepKind) for kind in ledger.cells)
    assert ledger.phases == Counter(phase for step in taken for phase in record_of(step).phases)


@given(st.lists(steps(), max_size=40))
def test_durations_add_up_under_their_kind(taken: list[Step]) -> None:
    ledger = Ledger()
    add(ledger, taken)
    for kind, cell in ledger.cells.items():
        us = {
            name: [step.us[name] for step in taken if kind_of(step) == kind and name in step.us] for name in DURATIONS
        }
        for name, durations in (("slack_us", cell.slack), ("wait_us", cell.wait), ("forward_us", cell.forward)):
            assert (durations.count, durations.sum_us) == (len(us[name]), sum(us[name]))
        assert (cell.lost_slack_us, cell.lost_us) == (sum(us["lost_slack_us"]), sum(us["lost_us"]))
    for last, durations in ledger.gaps.items():
        gaps = [step.us["gap_us"] for step in taken if step.gap_last == last and "gap_us" in step.us]
        assert (durations.count, durations.sum_us) == (len(gaps), sum(gaps))


@given(st.floats(0, 1e9))
def test_a_bucket_takes_what_is_not_above_its_bound(us: float) -> None:
    bucket = bucket_of(us)
    assert bucket == BUCKETS or us <= 2**bucket
    assert bucket == 0 or us > 2 ** (bucket - 1)
    durations = Durations()
    durations.add(us)
    assert durations.counts[bucket] == durations.count == 1


@pytest.mark.parametrize("exponent", range(BUCKETS))
def test_bounds_are_exact(exponent: int) -> None:
    bound = 2.0**exponent
    around = (nextafter(bound, 0), bound, nextafter(bound, inf))
    assert [bucket_of(us) for us in around] == [exponent, exponent, exponent + 1]
    durations = Durations()
    for us in around:
        durations.add(us)
    assert durations.counts[exponent : exponent + 2] == [2, 1]
    assert bound / 1e6 == DURATION_BUCKETS[exponent]


def test_device_times_of_a_step_that_was_not_timed_are_not_looked_at() -> None:
    record = record_of(FINE)
    record.timed = False
    ledger = Ledger()
    ledger.step_finished(record)
    (cell,) = ledger.cells.values()
    assert (cell.steps, cell.slack.count, ledger.gaps["host"].count) == (1, 0, 0)


def test_clamps_are_counted_by_duration() -> None:
    ledger = Ledger()
    add(ledger, [Step(clamped=("slack", "lost")), Step(clamped=("slack",)), Step(clamped=("slack",), timed=False)])
    assert ledger.clamps == {"slack": 2, "lost": 1}


def test_phases_are_kept_although_the_record_is_reused() -> None:
    ledger, record = Ledger(), record_of(FINE)
    verify = Phase(
        ForwardMode.TARGET_VERIFY, "target", "native", SharedReadEnds.IN_REPLAY, SharedReadEnds.IN_REPLAY, None
    )
    (decode,) = record.phases
    for phases in ([decode], [verify, decode], [decode], []):
        record.phases[:] = phases
        ledger.step_finished(record)
    assert ledger.phases == {decode: 3, verify: 1}
    (cell,) = ledger.cells.values()
    assert cell.steps == 4


def test_an_exemplar_lies_in_the_bucket_of_its_duration() -> None:
    ledger = Ledger()
    add(ledger, [FINE, COARSE])
    ledger.add_exemplar(trace_of(FINE, 1_000), TRACE_ID)
    cell = ledger.cells[kind_of(FINE)]
    assert {bucket: one.us for bucket, one in cell.slack.exemplars.items()} == {10: 900.0}
    assert {bucket: one.us for bucket, one in cell.wait.exemplars.items()} == {0: 1.0}
    assert {bucket: one.us for bucket, one in ledger.gaps["host"].exemplars.items()} == {2: 3.0}
    assert cell.slack.exemplars[10] == (TRACE_ID, 900.0, 1_000)
    assert not ledger.cells[kind_of(COARSE)].wait.exemplars
    ledger.add_exemplar(trace_of(FINE, 2_000), "f" * 32)
    assert cell.slack.exemplars[10].trace_id == "f" * 32


def test_a_trace_of_a_step_that_was_never_counted_is_no_exemplar() -> None:
    ledger = Ledger()
    ledger.add_exemplar(trace_of(FINE, 1_000), TRACE_ID)
    assert not ledger.cells
    assert not ledger.gaps["host"].exemplars


def test_its_size_does_not_depend_on_how_many_steps_there_are() -> None:
    ledger = Ledger()
    for number in range(2_000):
        add(ledger, [FINE, COARSE])
        ledger.add_exemplar(trace_of(FINE, number), TRACE_ID)
    assert len(ledger.cells) == 2
    assert [len(cell.routes) for cell in ledger.cells.values()] == [1, 1]
    assert len(ledger.cells[kind_of(FINE)].slack.exemplars) == 1


@pytest.fixture
def _restless() -> Generator[None]:
    """Threads change every few operations, so that what isn't safe shows."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_restless")
def test_a_reader_in_another_thread_never_sees_a_count_go_down() -> None:
    ledger, ended = Ledger(), threading.Event()

    def serve() -> None:
        number = 0
        while not ended.is_set():
            number += 1
            add(ledger, [FINE, Step(backend=f"backend{number % 2_000}", role=f"role{number % 7}")])

    server = threading.Thread(target=serve)
    server.start()
    try:
        seen = [ledger.phases.total() for _ in range(200)]
    finally:
        ended.set()
        server.join()
    assert seen == sorted(seen)
    assert ledger.phases.total() == sum(cell.steps for cell in ledger.cells.values())
