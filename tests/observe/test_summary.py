"""``Summary`` and percentiles: what was finished, added up by mode and backend."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_fence.contract import FallbackReason, FenceKind, ForwardMode, SharedReadEnds
from sglang_fence.observe.record import StepRecord
from sglang_fence.observe.summary import Summary, percentile, percentiles


def record(
    mode: ForwardMode, backend: str, slack_us: float | None = None, reason: FallbackReason | None = None
) -> StepRecord:
    made = StepRecord(None)
    made.reset(1, mode, backend, 2, 2)
    made.declared = SharedReadEnds.IN_REPLAY
    made.resolved = SharedReadEnds.POST_REPLAY
    made.downgrade = "no_marker"
    made.fence = FenceKind.FINE if reason is None else FenceKind.COARSE
    made.reason = reason
    made.timed = True
    made.slack_us = slack_us
    made.wait_us = slack_us
    return made


def test_steps_are_added_up_by_mode_and_backend() -> None:
    summary = Summary()
    summary.step_finished(record(ForwardMode.DECODE, "native", 5.0))
    summary.step_finished(record(ForwardMode.DECODE, "native", 7.0))
    summary.step_finished(record(ForwardMode.DECODE, "other"))
    summary.step_finished(record(ForwardMode.EXTEND, "native", 0.0, FallbackReason.FORCED))
    assert {key: mode.steps for key, mode in summary.modes.items()} == {
        ("decode", "native"): 2,
        ("decode", "other"): 1,
        ("extend", "native"): 1,
    }
    native = summary.modes["decode", "native"]
    assert (native.declared, native.resolved) == ({"IN_REPLAY": 2}, {"POST_REPLAY": 2})
    assert (native.fence, native.reasons, native.downgrades) == ({"fine": 2}, {}, {"no_marker": 2})
    assert native.slack_us == native.wait_us == [5.0, 7.0]
    decode = summary.by_mode()["decode"]
    assert (decode.steps, decode.slack_us, decode.fence) == (3, [5.0, 7.0], {"fine": 3})
    total = summary.total()
    assert (total.steps, total.slack_us) == (4, [5.0, 7.0, 0.0])
    assert (total.fence, total.reasons) == ({"fine": 3, "coarse": 1}, {"forced": 1})


def coarse(weight: int, lost_us: float | None, lost_slack_us: float | None, mode: ForwardMode) -> StepRecord:
    made = record(mode, "native", 0.0, FallbackReason.FORCED)
    made.weight, made.lost_us, made.lost_slack_us = weight, lost_us, lost_slack_us
    return made


def test_a_cost_that_was_measured_nowhere_is_none_and_not_nothing() -> None:
    summary = Summary()
    summary.step_finished(coarse(0, 5.0, 9.0, ForwardMode.EXTEND))  # traced out of turn: it stands for none
    summary.step_finished(coarse(7, None, None, ForwardMode.EXTEND))
    summary.step_finished(record(ForwardMode.DECODE, "native", 5.0))
    assert summary.fallbacks() == [
        {
            "mode": "extend",
            "reason": "forced",
            "steps": 2,
            "lost_us": None,
            "lost_from": 0,
            "lost_slack_us": None,
            "lost_slack_from": 0,
        },
    ]
    assert {mode: one.known_lost_us for mode, one in summary.by_mode().items()} == {"extend": None, "decode": 0.0}
    assert summary.total().known_lost_us is None


def test_a_cost_says_on_how_many_steps_it_was_measured() -> None:
    summary = Summary()
    for lost_us, lost_slack_us in ((5.0, 9.0), (None, 9.0), (None, None), (0.0, 2.0)):
        summary.step_finished(coarse(7, lost_us, lost_slack_us, ForwardMode.EXTEND))
    summary.step_finished(coarse(7, 3.0, 3.0, ForwardMode.DECODE))
    first, second = summary.fallbacks()
    assert (first["steps"], first["lost_us"], first["lost_from"]) == (4, 35.0, 2)
    assert (first["lost_slack_us"], first["lost_slack_from"]) == (140.0, 3)
    assert (second["lost_us"], second["lost_from"], second["lost_slack_from"]) == (21.0, 1, 1)
    total = summary.total()
    assert (total.known_lost_us, total.lost_from) == (56.0, 3)
    assert summary.by_mode()["decode"].lost_from == 1


def test_adding_up_changes_nothing_that_was_added() -> None:
    summary = Summary()
    summary.step_finished(record(ForwardMode.DECODE, "native", 5.0))
    summary.total().slack_us.append(9.0)
    summary.by_mode()["decode"].fence["fine"] += 1
    assert (summary.total().slack_us, summary.total().fence) == ([5.0], {"fine": 1})


def test_a_summary_keeps_numbers_and_not_the_record_that_is_reused() -> None:
    summary, one = Summary(), record(ForwardMode.DECODE, "native", 5.0)
    summary.step_finished(one)
    one.reset(2, ForwardMode.EXTEND, "other", 1, 1)
    assert summary.total().slack_us == [5.0]
    assert list(summary.modes) == [("decode", "native")]


def test_nothing_has_no_percentile() -> None:
    assert percentile([], 0.5) is None
    assert percentiles([]) == {"p50": None, "p90": None, "p99": None, "max": None}


def test_percentiles_of_a_hundred_and_one_values_are_their_ranks() -> None:
    values = [float(value) for value in reversed(range(101))]
    assert percentiles(values) == {"p50": 50.0, "p90": 90.0, "p99": 99.0, "max": 100.0}
    assert values[0] == 100.0


@given(values=st.lists(st.floats(-1e6, 1e6), min_size=1), share=st.floats(0, 1))
def test_a_percentile_is_one_of_the_values_and_so_much_lies_below(values: list[float], share: float) -> None:
    found = percentile(values, share)
    assert found in values
    assert sum(value < found for value in values) <= share * len(values)
    assert sum(value <= found for value in values) >= min(1.0, share) * len(values) - 1e-9


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_one_value_is_every_percentile(share: float) -> None:
    assert percentile([4.0], share) == 4.0
