"""What a capture shows around a step, to be drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sglang_fence.analyze.report import analyse
from sglang_fence.analyze.timeline import Kind, step_views

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.analyze.conftest import MadeCapture

FORWARD, SCHEDULE = 17, 13


@pytest.mark.parametrize("name", ["full", "breakable"])
def test_a_real_step_is_shown_whole(real: Callable[[str], Path], name: str) -> None:
    path = real(name)
    steps = analyse(path).steps
    for view in step_views(path, steps[2:12:3]):
        step = view.step
        assert step.began is not None
        assert step.forward_end is not None
        assert view.start < step.began < step.forward_end < view.end
        assert {"schedule", "launch", "barrier"} <= {found.name for found in view.host if found.step == step.number}
        kinds = [ran.kind for ran in view.forward if step.began <= ran.start < step.forward_end]
        assert {Kind.EAGER, Kind.PREPARATION, Kind.GRAPH} <= set(kinds)
        assert kinds.index(Kind.PREPARATION) < kinds.index(Kind.GRAPH)
        # The preparation ends where the reads are said to.
        assert max(ran.end for ran in view.forward if ran.kind is Kind.PREPARATION) == step.reads_end
        assert view.schedule
        for ran in (view.forward, view.schedule):
            assert list(ran) == sorted(ran, key=lambda one: one.start)


def test_what_lies_near_together_is_one_and_counted(made: MadeCapture, tmp_path: Path) -> None:
    call = made.replay(500, [(0, 1_000, 2_000), (2, 3_000, 3_010), (3, 3_011, 3_020), (4, 90_000, 99_000)])
    made.work(SCHEDULE, 10, 20)
    made.name_range("launch", 400, 600, 7)
    made.name_range("barrier", 600, 700, 7)
    made.wait(SCHEDULE, 650, made.record(FORWARD, call))
    made.name_range("barrier.fine", 660, None, 7)
    path = made.save(tmp_path / "made.sqlite")
    (view,) = step_views(path, analyse(path).steps)
    assert [(ran.kind, ran.start, ran.end, ran.count) for ran in view.forward] == [
        (Kind.PREPARATION, 1_000, 2_000, 1),
        (Kind.GRAPH, 3_000, 3_020, 2),
        (Kind.GRAPH, 90_000, 99_000, 1),
    ]
    assert [found.name for found in view.host] == ["launch", "barrier"]  # a mark has no length


def test_a_step_without_moments_has_an_empty_view(made: MadeCapture, tmp_path: Path) -> None:
    made.replay(500, [(0, 1_000, 2_000)])
    made.name_range("barrier", 600, 700, 7)  # with no wait in it
    path = made.save(tmp_path / "made.sqlite")
    (view,) = step_views(path, analyse(path).steps)
    assert view.forward == view.schedule == ()
