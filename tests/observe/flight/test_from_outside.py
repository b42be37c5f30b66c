"""A process that is stuck, or crashes, is dumped; one that isn't goes on."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from sglang_fence.contract import FenceKind, SharedReadEnds
from sglang_fence.observe.flight.explaining import What, Who, stand
from sglang_fence.observe.flight.facts import Cause, Stage
from tests.observe.flight.outside import PATIENCE_S, started

if TYPE_CHECKING:
    from pathlib import Path

STEP = 12


@pytest.mark.parametrize("timing", ["0", "1"])
def test_a_host_that_waits_for_results_for_ever_is_dumped_on_the_signal(tmp_path: Path, timing: str) -> None:
    with started("results", STEP, tmp_path, "--timing-every", timing) as outside:
        outside.until_stuck()
        outside.send(signal.SIGUSR2)
        dump = outside.dump()
        assert outside.process.poll() is None
    assert (dump.cause, dump.pid, dump.rank) == (Cause.SIGNAL, outside.process.pid, "0")
    assert [step.step for step in dump.steps] == list(range(STEP + 2))
    assert dump.progress.awaited == STEP
    assert dump.progress.in_hand == STEP - 1
    assert any(":ResultProcessor.process:" in frame for frame in dump.stack)
    assert any(frame.startswith("__main__:block_in_read:") for frame in dump.stack)
    standing = stand(dump)
    assert standing.completed == STEP - 1
    assert [(wait.who, wait.what, wait.step) for wait in standing.waits] == [
        (Who.HOST, What.RESULTS, STEP),
        (Who.FORWARD_STREAM, What.FORWARD, STEP),
        (Who.SCHEDULE_STREAM, What.RECORD, STEP),
        (Who.SCHEDULE_STREAM, What.RECORD, STEP + 1),
    ]
    bound = standing.waits[2]
    assert bound.ends is SharedReadEnds.IN_REPLAY
    assert bound.record == STEP  # one publication a step, from 0
    assert bound.event is not None
    assert standing.waits[3].record == STEP + 1


def test_a_wait_that_is_being_enqueued_is_shown_with_the_record_that_it_is_for(tmp_path: Path) -> None:
    with started("wait", STEP, tmp_path) as outside:
        outside.until_stuck()
        outside.send(signal.SIGUSR2)
        dump = outside.dump()
    newest = dump.newest
    assert newest is not None
    assert (newest.step, newest.stage, newest.fence, newest.record) == (STEP, Stage.AT_BARRIER, FenceKind.FINE, STEP)
    waits = stand(dump).waits
    assert (waits[0].who, waits[0].what, waits[0].step) == (Who.HOST, What.BARRIER, STEP)
    assert (waits[-1].who, waits[-1].record) == (Who.SCHEDULE_STREAM, STEP)


def test_a_step_that_never_comes_to_its_barrier_is_shown(tmp_path: Path) -> None:
    with started("launch", STEP, tmp_path) as outside:
        outside.until_stuck()
        outside.send(signal.SIGUSR2)
        dump = outside.dump()
    newest = dump.newest
    assert newest is not None
    assert (newest.step, newest.stage, newest.record) == (STEP, Stage.LAUNCHING, None)
    waits = stand(dump).waits
    assert (waits[0].who, waits[0].what, waits[0].step) == (Who.HOST, What.LAUNCH, STEP)
    assert [(wait.step, wait.record) for wait in waits if wait.what is What.RECORD] == [(STEP - 1, STEP - 1)]


def test_the_ring_keeps_the_last_steps_alone_and_each_signal_gives_one_dump(tmp_path: Path) -> None:
    with started("results", STEP, tmp_path, "--flight-recorder", "5", "--timing-every", "3") as outside:
        outside.until_stuck()
        for count in (1, 2, 3):
            outside.send(signal.SIGUSR2)
            dump = outside.dump(count)
            assert [step.step for step in dump.steps] == list(range(STEP - 3, STEP + 2))
            assert dump.capacity == 5
        assert len(outside.files()) == 3


def test_the_watchdog_dumps_a_stall_once_and_by_itself(tmp_path: Path) -> None:
    with started("results", STEP, tmp_path, "--watchdog", "0.2") as outside:
        outside.until_stuck()
        dump = outside.dump()
        assert dump.cause is Cause.WATCHDOG
        outside.send(signal.SIGUSR2)  # whatever the watchdog still had to write would come first
        assert outside.dump(2).cause is Cause.SIGNAL
        assert len(outside.files()) == 2


def test_without_a_recorder_the_signal_means_what_it_always_did(tmp_path: Path) -> None:
    with started("results", STEP, tmp_path, records=False) as outside:
        outside.until_stuck()
        outside.send(signal.SIGUSR2)
        assert outside.process.wait(PATIENCE_S) == -signal.SIGUSR2
    assert outside.files() == []


def test_a_run_that_fails_leaves_a_dump_without_the_text_of_its_error(tmp_path: Path) -> None:
    with started("error", STEP, tmp_path) as outside:
        _, said = outside.process.communicate(timeout=PATIENCE_S)
        assert outside.process.returncode == 3
    assert "a secret prompt" in said  # on stderr, where errors go
    (path,) = outside.files()
    assert "secret" not in path.read_text(encoding="utf-8")
    dump = outside.dump()
    assert (dump.cause, dump.detail) == (Cause.EXCEPTION, "builtins.RuntimeError")
    assert dump.newest is not None
    assert dump.newest.step == STEP + 1


def test_a_run_that_ends_well_leaves_none(tmp_path: Path) -> None:
    with started("nowhere", 0, tmp_path, "--watchdog", "30") as outside:
        outside.process.communicate(timeout=PATIENCE_S)
        assert outside.process.returncode == 0
    assert outside.files() == []
