"""The flight recorder on a GPU that stands still: dumped from outside, without waiting for the device."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest

from sglang_fence.contract import SharedReadEnds
from sglang_fence.observe.flight.explaining import What, Who, stand
from sglang_fence.observe.flight.facts import Cause
from sglang_fence.observe.flight.files import KEEP_OWN
from sglang_fence.observe.flight.wording import paragraph
from tests.observe.flight.outside import PATIENCE_S, started

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sglang_fence.observe.flight.facts import Dump
    from tests.observe.flight.outside import Outside

STEP = 12


def check(dump: Dump) -> None:
    """The step that never ends is found, with the record that the schedule stream waits for."""
    standing = stand(dump)
    assert standing.completed == STEP - 1
    bound = [wait for wait in standing.waits if wait.who is Who.SCHEDULE_STREAM]
    assert (bound[0].what, bound[0].step, bound[0].record) == (What.RECORD, STEP, STEP)
    assert bound[0].ends is SharedReadEnds.IN_REPLAY
    assert bound[0].event is not None
    host = [(wait.what, wait.step) for wait in standing.waits if wait.who is Who.HOST]
    assert host == [(What.RESULTS, STEP)]
    assert any(":ResultProcessor.process:" in frame for frame in dump.stack)


def dump_once_the_host_is_stuck(outside: Outside) -> tuple[Dump, float]:
    """Ask again until the host has run into the device, which it does a moment later; return how long the last took."""
    deadline = time.monotonic() + PATIENCE_S
    for count in range(1, KEEP_OWN + 1):
        sent = time.perf_counter()
        outside.send(signal.SIGUSR2)
        dump = outside.dump(count)
        took = time.perf_counter() - sent
        if dump.progress.awaited == STEP:
            return dump, took
        assert time.monotonic() < deadline
    msg = f"the host never waited for step {STEP}"
    raise AssertionError(msg)


@pytest.mark.gpu
@pytest.mark.parametrize("timing", ["0", "1", "101"])
@pytest.mark.parametrize("place", ["spin", "unrecorded"])
def test_a_device_that_stands_still_is_dumped_on_the_signal(
    place: str, timing: str, tmp_path: Path, report: Callable[[str], None]
) -> None:
    with started(place, STEP, tmp_path, "--timing-every", timing, device="cuda") as outside:
        outside.until_stuck()
        dump, took = dump_once_the_host_is_stuck(outside)
        assert outside.process.poll() is None
    report(f"{place}, timing every {timing}: dumped {1e3 * took:.1f} ms after the signal")
    report("\n  ".join(paragraph(stand(dump))))
    assert dump.cause is Cause.SIGNAL
    check(dump)


@pytest.mark.gpu
def test_the_watchdog_finds_a_kernel_that_spins(tmp_path: Path) -> None:
    with started("spin", STEP, tmp_path, "--watchdog", "1", device="cuda") as outside:
        outside.until_stuck()
        dump = outside.dump()
    assert dump.cause is Cause.WATCHDOG
    check(dump)
