"""The comparison that is made on a GPU, on a capture made by hand, in which all is known to the nanosecond."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.analyze.making.compare import WARM_UP, compare
from tests.analyze.making.witnessing import witnessed

if TYPE_CHECKING:
    from pathlib import Path

    from tests.analyze.conftest import MadeCapture

FORWARD, SCHEDULE, WITNESS, BUSY = 17, 13, 21, 25
LATE_NS, STEPS, PERIOD_NS = 3_000, 40, 1_000_000
READS_END, MARKER, NEXT_NODE, FORWARD_END = 20_000, 25_000, 220_000, 500_000
"""Of each step, from its beginning: the marker passes soon behind the node before it, and the tool's gap is long."""


@pytest.fixture
def path(made: MadeCapture, tmp_path: Path) -> Path:
    for at in range(10):
        # The calibration: the witness's kernel behind one that ended.
        made.work(BUSY, at * 10_000, at * 10_000 + 5_000)
        made.wait(WITNESS, at * 10_000 + 100, made.record(BUSY))
        made.work(WITNESS, at * 10_000 + 5_000 + LATE_NS, at * 10_000 + 5_100 + LATE_NS)
    for step in range(STEPS):
        zero = PERIOD_NS * (step + 1)
        made.work(SCHEDULE, zero - 900, zero - 800)
        call = made.replay(zero - 500, [(0, zero, zero + READS_END), (2, zero + NEXT_NODE, zero + FORWARD_END)])
        made.name_range("barrier", zero + 1_000, zero + 2_000, step)
        record = made.record(FORWARD, call)
        made.wait(WITNESS, zero + 1_100, record)
        made.work(WITNESS, zero + MARKER + LATE_NS, zero + MARKER + LATE_NS + 100)
        made.wait(SCHEDULE, zero + 1_200, record)
        made.name_range("barrier.fine", zero + 1_300, None, step)
    return made.save(tmp_path / "made.sqlite")


def observed(error_us: float = 0.0) -> dict[str, Any]:
    """Return what an observer would have recorded that is off by so much."""
    slack, wait = (FORWARD_END - MARKER) / 1e3, (MARKER - 1_200) / 1e3
    row = {"fence": "fine", "slack_us": slack + error_us, "wait_us": wait - error_us, "forward_us": FORWARD_END / 1e3}
    return {"steps": [{"step": step, **row} for step in range(STEPS)]}


def test_the_witness_is_found_and_its_delay_is_measured(path: Path) -> None:
    sight = witnessed(path)
    assert sight.late_ns == (LATE_NS,) * 10
    assert len(sight.steps) == STEPS
    assert {one.began for one in sight.steps.values()} == {PERIOD_NS * (n + 1) + MARKER + LATE_NS for n in range(STEPS)}


def test_an_observer_that_is_right_agrees_with_the_witness_and_not_with_the_nodes(path: Path) -> None:
    found = compare(path, observed())
    assert found["steps"] == STEPS - WARM_UP
    for what in ("slack", "wait"):
        differs = found[f"{what}_observer_less_witness"]
        assert (differs["median"], differs["absolute_max"], differs["within_bounds"]) == (0.0, 0.0, True)
    assert found["slack_observer_less_node_before_marker"]["median"] == (READS_END - MARKER) / 1e3
    assert found["slack_observer_less_node_behind_marker"]["median"] == (NEXT_NODE - MARKER) / 1e3
    assert found["gap_at_marker_us"]["p50"] == (NEXT_NODE - READS_END) / 1e3
    assert found["witness_place_in_gap"]["p50"] == (MARKER - READS_END) / (NEXT_NODE - READS_END)
    assert found["observer_within_bracket"] == 1.0


@pytest.mark.parametrize(("error_us", "within"), [(-30.0, 1.0), (3.0, 1.0), (30.0, 0.0)])
def test_an_observer_that_is_off_is_seen_to_be(path: Path, error_us: float, within: float) -> None:
    found = compare(path, observed(error_us))
    differs = found["slack_observer_less_witness"]
    assert differs["median"] == error_us
    assert not differs["within_bounds"]
    assert found["observer_within_bracket"] == within
