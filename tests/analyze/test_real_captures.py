"""Captures of the runtime on an H200: 25 steps each, of which 2 extends are coarse and 23 decodes are fine."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from sglang_fence.analyze.report import analyse
from sglang_fence.analyze.steps import Basis
from sglang_fence.contract import FenceKind, ForwardMode, SharedReadEnds
from tests.analyze.expectations import DATA, MOST_BYTES, SUFFIX, expected, names, unlike

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CAPTURES = ("full", "breakable", "plain")
FINE, COARSE = FenceKind.FINE, FenceKind.COARSE


@pytest.mark.parametrize("name", names())
def test_every_capture_says_of_each_step_what_its_run_recorded(real: Callable[[str], Path], name: str) -> None:
    assert unlike(analyse(real(name)), expected(name)) == []


def test_what_is_known_of_a_capture_can_be_contradicted(real: Callable[[str], Path]) -> None:
    report = analyse(real("full"))
    for key, value in (("fence", "coarse"), ("ends", "PRE_REPLAY"), ("mode", "extend"), ("step", 99)):
        known = expected("full")
        known["steps"][10][key] = value
        assert unlike(report, known), key
    shorter = expected("full")
    del shorter["steps"][-1]
    assert unlike(report, shorter | {"named": False})


def test_the_captures_are_small_and_each_is_known() -> None:
    assert set(CAPTURES) <= set(names())
    assert sum(path.stat().st_size for path in DATA.glob(f"*{SUFFIX}")) <= MOST_BYTES
    assert {path.stem for path in DATA.glob("*.json")} == set(names())


@pytest.mark.parametrize("name", CAPTURES)
def test_each_step_has_the_fence_that_the_run_gave_it(real: Callable[[str], Path], name: str) -> None:
    report = analyse(real(name))
    assert [step.fence for step in report.steps] == [COARSE] * 2 + [FINE] * 23
    assert [step.ends for step in report.steps] == [None] * 2 + [SharedReadEnds.IN_REPLAY] * 23
    assert [step.streams_say for step in report.steps] == [step.fence for step in report.steps]
    assert {(step.forward_stream, step.schedule_stream) for step in report.steps} == {(17, 13)}
    assert not any(step.earlier or step.overtaken for step in report.steps)
    assert report.missing == ()


@pytest.mark.parametrize("name", CAPTURES)
def test_times_are_in_the_order_in_which_things_can_happen(real: Callable[[str], Path], name: str) -> None:
    for step in analyse(real(name)).steps:
        assert step.reads_end is not None
        assert step.forward_end is not None
        assert step.reads_end <= step.forward_end
        if step.fence is FINE:
            assert step.slack is not None
            assert step.slack_least is not None
            assert step.reads_end_latest is not None
            assert step.began is not None
            assert step.began < step.reads_end < step.reads_end_latest
            assert 100_000 < step.slack_least < step.slack < step.forward_end - step.began
            assert step.lost_slack is None
        else:
            assert step.slack == 0
            assert step.basis is Basis.ASSUMED
            assert step.lost_slack is not None
            assert step.lost_slack > 1_000_000
        if step.next_work is not None:
            assert step.released is not None
            assert step.released <= step.next_work


@pytest.mark.parametrize(("name", "segments"), [("full", 1), ("breakable", 3), ("plain", 1)])
def test_the_marker_is_the_ninth_node_of_the_first_segment(
    real: Callable[[str], Path],
    name: str,
    segments: int,
) -> None:
    report = analyse(real(name))
    for step in report.steps[2:]:
        shapes = [report.shapes[step.process, replay.graph] for replay in step.replays if replay.graph is not None]
        assert [shape.marker for shape in shapes] == [8, None, None][:segments]
        if name != "plain":
            assert shapes[0].preparation == tuple(range(8))
    assert {replay.correlation for step in report.steps for replay in step.replays} == {
        call for _, call in report.launched
    }


@pytest.mark.parametrize("name", ["full", "breakable"])
def test_what_is_inferred_without_ranges_equals_what_the_ranges_name(real: Callable[[str], Path], name: str) -> None:
    path = real(name)
    named = analyse(path)
    with closing(sqlite3.connect(path)) as database:
        database.execute("DROP TABLE NVTX_EVENTS")
    inferred = analyse(path)
    assert named.named
    assert not inferred.named
    assert [step.number for step in named.steps] == list(range(25))
    assert [step.mode for step in named.steps] == [ForwardMode.EXTEND] * 2 + [ForwardMode.DECODE] * 23
    assert [(s.fence, s.slack, s.wait, s.lost_slack) for s in inferred.steps] == [
        (s.fence, s.slack, s.wait, s.lost_slack) for s in named.steps
    ]
    assert len(inferred.inferred) > len(named.inferred)


def test_without_the_capture_of_the_graphs_the_marker_is_found_too(real: Callable[[str], Path]) -> None:
    path = real("full")
    whole = analyse(path)
    with closing(sqlite3.connect(path)) as database:
        database.execute("DROP TABLE CUDA_GRAPH_NODE_EVENTS")
    later = analyse(path)
    assert [step.slack for step in later.steps] == [step.slack for step in whole.steps]
    assert any("isn't named" in sentence for sentence in later.inferred)
