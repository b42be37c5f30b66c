"""Known timelines: each kind of end, a late host, what a coarse fence lost, and what contradicts itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sglang_fence.analyze.report import analyse
from sglang_fence.analyze.serialising import to_json
from sglang_fence.analyze.steps import Basis
from sglang_fence.analyze.tables import NVTX_PUSH_POP
from sglang_fence.contract import FenceKind, ForwardMode, SharedReadEnds

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.analyze.conftest import MadeCapture

FORWARD, SCHEDULE = 17, 13
THREAD = 5 << 24 | 7
NODES = [(0, 1000, 2000), (2, 3000, 9000)]
"""Node 1 is the marker; the forward ends at 9000."""


def test_in_replay(made: MadeCapture, tmp_path: Path) -> None:
    call = made.replay(500, NODES)
    made.wait(SCHEDULE, 1500, made.record(FORWARD, call))
    made.work(SCHEDULE, 2500, 2600)
    (step,) = analyse(made.save(tmp_path / "c.sqlite")).steps
    assert (step.fence, step.ends) == (FenceKind.FINE, SharedReadEnds.IN_REPLAY)
    assert (step.slack, step.wait, step.released, step.next_work) == (7000, 500, 2000, 2500)
    # The node behind the marker began at 3000, but the schedule stream's next work at 2500 already.
    assert step.slack_least == 6500


def test_pre_replay(made: MadeCapture, tmp_path: Path) -> None:
    made.work(FORWARD, 100, 400)
    record = made.record(FORWARD)
    made.replay(500, NODES)
    made.wait(SCHEDULE, 300, record)
    made.work(SCHEDULE, 450, 460)
    (step,) = analyse(made.save(tmp_path / "c.sqlite")).steps
    assert (step.fence, step.ends) == (FenceKind.FINE, SharedReadEnds.PRE_REPLAY)
    assert (step.slack, step.wait) == (8600, 100)


def test_post_replay_with_work_behind_it(made: MadeCapture, tmp_path: Path) -> None:
    made.replay(500, NODES)
    record = made.record(FORWARD)
    made.work(FORWARD, 9100, 9400)
    made.wait(SCHEDULE, 600, record)
    made.work(SCHEDULE, 9500, 9600)
    (step,) = analyse(made.save(tmp_path / "c.sqlite")).steps
    assert (step.fence, step.ends) == (FenceKind.FINE, SharedReadEnds.POST_REPLAY)
    assert (step.slack, step.wait) == (400, 8400)


@pytest.mark.parametrize(
    ("nodes", "basis", "lost"),
    [(NODES, Basis.MARKER, 7000), ([(0, 1000, 2000), (1, 2000, 9000)], Basis.ASSUMED, 8600)],
)
def test_coarse(
    made: MadeCapture,
    tmp_path: Path,
    nodes: list[tuple[int, int, int]],
    basis: Basis,
    lost: int,
) -> None:
    made.work(FORWARD, 100, 400)
    made.replay(500, nodes)
    made.bind(FORWARD, 4000, SCHEDULE)
    made.work(SCHEDULE, 9001, 9002)
    (step,) = analyse(made.save(tmp_path / "c.sqlite")).steps
    assert (step.fence, step.slack, step.wait) == (FenceKind.COARSE, 0, 5000)
    assert (step.basis, step.lost_slack) == (basis, lost)


def test_a_wait_for_an_earlier_step_is_said(made: MadeCapture, tmp_path: Path) -> None:
    call = made.replay(500, NODES)
    record = made.record(FORWARD, call)
    made.wait(SCHEDULE, 1500, record)
    made.work(SCHEDULE, 3000, 3100)
    made.replay(10_000, [(0, 11_000, 12_000), (2, 13_000, 19_000)])
    made.wait(SCHEDULE, 11_500, record)
    report = analyse(made.save(tmp_path / "c.sqlite"))
    assert [step.earlier for step in report.steps] == [False, True]
    assert any("before its step: 1 wait," in sentence for sentence in report.missing)


def test_a_schedule_stream_that_goes_on_too_early_is_said(made: MadeCapture, tmp_path: Path) -> None:
    call = made.replay(500, NODES)
    made.wait(SCHEDULE, 600, made.record(FORWARD, call))
    made.work(SCHEDULE, 1999, 2100)
    report = analyse(made.save(tmp_path / "c.sqlite"))
    assert report.steps[0].overtaken
    assert any("did not hold" in sentence for sentence in report.missing)


def test_ranges_name_steps_modes_and_what_the_streams_cannot_tell(made: MadeCapture, tmp_path: Path) -> None:
    made.replay(500, NODES)
    made.work(SCHEDULE, 10, 20)
    made.name_range("prefill", 400, 600, 41)
    made.name_range("barrier", 600, 700, 41)
    made.bind(FORWARD, 650, SCHEDULE)
    made.name_range("barrier.fine", 660, None, 41)
    made.name_range("barrier", 9600, 9700, 42)
    made.name_range("barrier.disabled", 9650, None, 42)
    report = analyse(made.save(tmp_path / "c.sqlite"))
    first, second = report.steps
    assert (first.number, first.mode, first.fence) == (41, ForwardMode.EXTEND, FenceKind.FINE)
    assert (first.streams_say, first.ends) == (FenceKind.COARSE, SharedReadEnds.POST_REPLAY)
    assert (second.number, second.mode, second.fence) == (42, ForwardMode.DECODE, FenceKind.DISABLED)
    assert second.slack is None
    assert any("Of 1 barrier this capture shows no wait" in sentence for sentence in report.missing)
    assert not any("contradicted" in sentence for sentence in report.missing)


def test_a_mark_that_the_streams_contradict_is_said(made: MadeCapture, tmp_path: Path) -> None:
    call = made.replay(500, NODES)
    made.work(SCHEDULE, 10, 20)
    made.name_range("barrier", 600, 700, 0)
    made.wait(SCHEDULE, 650, made.record(FORWARD, call))
    made.name_range("barrier.coarse", 660, None, 0)
    report = analyse(made.save(tmp_path / "c.sqlite"))
    assert report.steps[0].fence is FenceKind.COARSE
    assert any("contradicted by 1 mark;" in sentence for sentence in report.missing)


def test_a_stream_on_which_nothing_runs_is_no_schedule_stream(made: MadeCapture, tmp_path: Path) -> None:
    call = made.replay(500, NODES)
    record = made.record(FORWARD, call)
    made.work(SCHEDULE, 10, 20)
    made.name_range("barrier", 600, 700, 0)
    made.wait(SCHEDULE, 620, record)
    made.wait(14, 650, record)
    made.name_range("barrier.fine", 660, None, 0)
    (step,) = analyse(made.save(tmp_path / "c.sqlite")).steps
    assert step.schedule_stream == SCHEDULE


def test_a_node_without_work_inside_the_preparation_is_not_the_marker(made: MadeCapture, tmp_path: Path) -> None:
    made.name_range("capture", 10, 100, -1)
    made.name_range("in_graph_metadata", 20, 50, -1)
    for number, captured in enumerate([25, 30, 35, 60, 70]):
        original, copied = 1 << 32 | number, 2 << 32 | number
        made.rows["CUDA_GRAPH_NODE_EVENTS"] += [(captured, THREAD, original, None), (110, THREAD, copied, original)]
    call = made.replay(500, [(0, 1000, 2000), (2, 2000, 2500), (4, 3000, 9000)])
    made.wait(SCHEDULE, 1500, made.record(FORWARD, call))
    made.work(SCHEDULE, 9500, 9600)
    report = analyse(made.save(tmp_path / "c.sqlite"))
    (shape,) = report.shapes.values()
    assert (shape.gaps, shape.preparation, shape.marker) == ((1, 3), (0, 1, 2), 3)
    assert (report.steps[0].slack, report.steps[0].slack_least) == (6500, 6000)
    assert any("several nodes" in sentence for sentence in report.inferred)


def test_the_forward_ends_with_the_last_to_end_not_the_last_to_be_enqueued(made: MadeCapture, tmp_path: Path) -> None:
    call = made.replay(500, NODES)
    made.work(FORWARD, 8000, 8100)  # a kernel may begin before the one in front of it has ended
    made.wait(SCHEDULE, 1500, made.record(FORWARD, call))
    made.work(SCHEDULE, 9500, 9600)
    (step,) = analyse(made.save(tmp_path / "c.sqlite")).steps
    assert (step.forward_end, step.slack) == (9000, 7000)


def test_ranges_of_another_domain_name_nothing(made: MadeCapture, tmp_path: Path) -> None:
    call = made.replay(500, NODES)
    made.name_range("schedule", 1, 2, 0)
    made.rows["NVTX_EVENTS"].append((600, 700, NVTX_PUSH_POP, "barrier", THREAD, None, 9, 5))
    made.wait(SCHEDULE, 650, made.record(FORWARD, call))
    made.work(SCHEDULE, 9500, 9600)
    report = analyse(made.save(tmp_path / "c.sqlite"))
    assert not report.named
    assert [step.number for step in report.steps] == [None]


def test_waits_in_one_direction_are_no_barriers(made: MadeCapture, tmp_path: Path) -> None:
    for start in (100, 200):  # as the observer calibrates, before anything is served
        made.work(FORWARD, start, start + 10)
        made.bind(FORWARD, start, SCHEDULE)
        made.work(SCHEDULE, start + 20, start + 30)
    call = made.replay(500, NODES)
    record = made.record(FORWARD, call)
    made.wait(SCHEDULE, 600, record)
    made.wait(SCHEDULE, 700, record)
    (step,) = analyse(made.save(tmp_path / "c.sqlite")).steps
    assert step.slack == 7000


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.tuples(st.integers(1, 500), st.integers(0, 500), st.integers(1, 5000), st.integers(0, 6000), st.booleans()),
        min_size=1,
        max_size=8,
    ),
)
def test_slack_and_wait_are_what_arithmetic_gives(
    make: Callable[[], MadeCapture],
    tmp_path: Path,
    steps: list[tuple[int, int, int, int, bool]],
) -> None:
    made, now, expected = make(), 1000, list[tuple[FenceKind, int | None, int | None]]()
    for preparation, gap, rest, late, fine in steps:
        reads_end = now + preparation
        end = reads_end + gap + rest
        call = made.replay(now, [(0, now, reads_end), (2, reads_end + gap, end)])
        if fine:
            made.wait(SCHEDULE, now + late, made.record(FORWARD, call))
        else:
            made.bind(FORWARD, now + late, SCHEDULE)
        held_to = reads_end if fine else end
        kind = FenceKind.FINE if fine else FenceKind.COARSE
        expected.append((kind, end - held_to, max(0, held_to - (now + late))))
        now = max(end, now + late) + 10
        made.work(SCHEDULE, now - 5, now - 4)
    path = tmp_path / "property.sqlite"
    path.unlink(missing_ok=True)
    found = analyse(made.save(path)).steps
    assert [(step.fence, step.slack, step.wait) for step in found] == expected


def test_lost_slack_that_is_known_of_no_coarse_step_is_none_and_not_nothing(made: MadeCapture, tmp_path: Path) -> None:
    made.work(SCHEDULE, 10, 20)
    made.work(FORWARD, 100, 900)  # no replay: nothing says where its reads ended
    made.name_range("barrier", 200, 400, 0)
    made.wait(SCHEDULE, 300, made.record(FORWARD))
    made.name_range("barrier.coarse", 350, None, 0)
    report = analyse(made.save(tmp_path / "c.sqlite"))
    (row,) = report.summary
    assert (row.coarse, row.lost_slack, row.lost_slack_from) == (1, None, 0)
    (told,) = cast("list[dict[str, object]]", to_json(report)["summary"])
    assert (told["lost_slack_us"], told["lost_slack_from"]) == (None, 0)
