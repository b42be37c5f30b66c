"""Whether the host had the observer copy the end of reads in time: an event reads no earlier than it is recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from sglang_fence.analyze.report import analyse
from sglang_fence.analyze.serialising import to_json
from sglang_fence.contract import FenceKind
from tests.analyze.conftest import FORWARD, SCHEDULE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.analyze.conftest import MadeCapture

OBSERVER, WITNESS = 14, 21
NODES = [(0, 1000, 2000), (2, 3000, 9000)]
"""Node 1 is the marker; the schedule stream's work shows that it had passed by 2500."""


def fenced(made: MadeCapture, copied: int | None) -> MadeCapture:
    record = made.record(FORWARD, made.replay(500, NODES))
    made.wait(OBSERVER, 100, made.record(SCHEDULE))  # for something else
    if copied is not None:
        made.wait(OBSERVER, copied, record)
        made.record(OBSERVER)
    made.wait(WITNESS, 3500, record)  # a stream that works isn't the observer's
    made.work(WITNESS, 3600, 3700)
    made.wait(SCHEDULE, 3600, record)
    made.work(SCHEDULE, 2500, 2600)
    made.name_range("barrier", 90, 4000, 7)
    made.name_range("barrier.fine", 3700, None, 7)
    return made


@pytest.mark.parametrize(("copied", "late"), [(3100, 600), (2400, 0), (None, None)])
def test_a_copy_is_late_by_what_it_was_asked_for_behind_the_end_of_reads(
    made: MadeCapture,
    tmp_path: Path,
    copied: int | None,
    late: int | None,
) -> None:
    report = analyse(fenced(made, copied).save(tmp_path / "made.sqlite"))
    (step,) = report.steps
    assert (step.slack_least, step.observer_late) == (6500, late)
    assert any("observer_late_us" in sentence for sentence in report.inferred) is bool(late)
    told: Any = to_json(report)
    assert told["steps"][0]["observer_late_us"] == (None if late is None else late / 1000)


@pytest.mark.parametrize("name", ["full", "breakable"])
def test_under_the_tool_the_host_was_behind_the_marker_in_every_fine_step(
    real: Callable[[str], Path],
    name: str,
) -> None:
    late = [step.observer_late for step in analyse(real(name)).steps if step.fence is FenceKind.FINE]
    assert len(late) == 23
    assert all(found is not None and found > 100_000 for found in late)


def test_an_unobserved_run_has_no_copy(real: Callable[[str], Path]) -> None:
    assert {step.observer_late for step in analyse(real("plain")).steps} == {None}
