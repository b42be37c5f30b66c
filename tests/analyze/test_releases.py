"""Streams that the device lets go at once or late, of steps whose moments are known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.analyze.making.host_calls import HostCall
from tests.analyze.making.lateness import Calibration
from tests.analyze.making.releases import LATE_US, releases

NODE_NS, END_NS = 1_000_000, 5_000_000
WITNESS_LATE_US, RECORD_US = 6.0, 3.0
WAITED_NS = NODE_NS - 100_000
LATE = 2 * LATE_US


def pair(observer_us: float, witness_us: float) -> Any:  # noqa: ANN401 - of the three, what is looked at
    """Return a step whose observer and witness were let go so long behind the node before the marker."""
    slack = (END_NS - NODE_NS) / 1e3 - observer_us
    began = NODE_NS + round((witness_us + WITNESS_LATE_US) * 1e3)
    seen = SimpleNamespace(began=began, forward_end=END_NS, wait_call=HostCall(WAITED_NS, WAITED_NS + 1), idle=0)
    return (
        {"slack_us": slack, "wait_us": (NODE_NS - WAITED_NS) / 1e3 - RECORD_US + observer_us},
        seen,
        SimpleNamespace(reads_end=NODE_NS),
    )


def test_streams_are_compared_where_they_were_let_go_alike() -> None:
    pairs = [pair(1.0, 2.0)] * 5 + [pair(LATE, LATE + 1.0)] * 90 + [pair(LATE, 2.0)] * 4 + [pair(1.0, LATE)]
    found = releases(pairs, Calibration(WITNESS_LATE_US, RECORD_US, {}))
    assert found["let_go"] == {"both_at_once": 5, "both_late": 90, "observer_late": 4, "witness_late": 1}
    slack, wait = found["slack_observer_less_witness_when_alike"], found["wait_observer_less_witness_when_alike"]
    assert (slack["steps"], wait["steps"]) == (95, 95)
    assert (slack["median"], wait["median"]) == pytest.approx((1.0, -1.0))
    assert slack["within_bounds"]
    assert wait["within_bounds"]
    assert found["observer_behind_node_us"]["p50"] == pytest.approx(LATE)


def test_a_step_without_a_node_or_a_witness_is_left_out() -> None:
    one, other = pair(1.0, 2.0), pair(1.0, 2.0)
    one[1].began = None
    other[2].reads_end = None
    without: Any = ({"slack_us": 1.0, "wait_us": 1.0}, SimpleNamespace(began=1, wait_call=None), None)
    assert releases([one, other, without], Calibration(0.0, None, {}))["let_go"] == {}
