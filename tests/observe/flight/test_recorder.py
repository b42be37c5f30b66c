"""The recorder in this very process: what it hears, whom it leaves in peace, and what it puts back."""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sglang_fence.contract import ForwardMode
from sglang_fence.errors import ConfigError
from sglang_fence.observe.flight.facts import Cause
from sglang_fence.observe.flight.form import read
from sglang_fence.observe.flight.options import FlightOptions
from sglang_fence.observe.flight.recorder import THREAD, FlightRecorder
from sglang_fence.observe.flight.ring import FlightRing
from sglang_fence.observe.ledger import Ledger
from sglang_fence.observe.observer import Observers
from sglang_fence.observe.probe import StepProbe

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from sglang_fence.observe.flight.facts import Dump

PATIENCE_S = 60.0


@pytest.fixture
def probe() -> StepProbe:
    made = StepProbe(Observers([Ledger()]), ring=FlightRing(4))
    made.step_started(0, ForwardMode.DECODE, "native", 8, 8)
    return made


@pytest.fixture
def recorder(probe: StepProbe, tmp_path: Path) -> Generator[FlightRecorder]:
    with FlightRecorder(probe, FlightOptions(folder=tmp_path), virtual=False) as made:
        yield made


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def dumps(folder: Path) -> list[Dump]:
    return [read(path) for path in sorted(folder.glob("sglang-fence-flight-*.json"))]


def test_everything_is_put_back_at_the_end(probe: StepProbe, tmp_path: Path) -> None:
    before = (
        signal.getsignal(signal.SIGUSR2),
        sys.excepthook,
        threading.excepthook,
        open_files(),
    )
    recorder = FlightRecorder(probe, FlightOptions(folder=tmp_path), virtual=False)
    with recorder:
        assert signal.getsignal(signal.SIGUSR2) is not before[0]
        assert THREAD in {thread.name for thread in threading.enumerate()}
    assert THREAD not in {thread.name for thread in threading.enumerate()}
    recorder.close()
    assert before == (
        signal.getsignal(signal.SIGUSR2),
        sys.excepthook,
        threading.excepthook,
        open_files(),
    )
    assert signal.set_wakeup_fd(-1) == -1
    assert dumps(tmp_path) == []


def test_whoever_listened_before_still_hears(probe: StepProbe, tmp_path: Path) -> None:
    heard: list[int] = []
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)  # noqa: FBT003 - it takes no keyword
    ours.settimeout(PATIENCE_S)
    handler_before = signal.signal(signal.SIGUSR2, lambda number, _: heard.append(number))
    other_before = signal.signal(signal.SIGUSR1, lambda number, _: heard.append(number))
    fd_before = signal.set_wakeup_fd(theirs.fileno())
    mine = signal.getsignal(signal.SIGUSR2)
    try:
        with FlightRecorder(probe, FlightOptions(folder=tmp_path), virtual=False):
            os.kill(os.getpid(), signal.SIGUSR1)
            assert ours.recv(10) == bytes([signal.SIGUSR1])
            assert dumps(tmp_path) == []
            os.kill(os.getpid(), signal.SIGUSR2)
            assert ours.recv(10) == bytes([signal.SIGUSR2])
            until(lambda: len(dumps(tmp_path)) == 1)
        assert heard == [signal.SIGUSR1, signal.SIGUSR2]
        assert signal.getsignal(signal.SIGUSR2) is mine
        assert signal.set_wakeup_fd(theirs.fileno()) == theirs.fileno()
    finally:
        signal.set_wakeup_fd(fd_before)
        signal.signal(signal.SIGUSR2, handler_before)
        signal.signal(signal.SIGUSR1, other_before)
        ours.close()
        theirs.close()


def test_whoever_takes_the_pipe_later_keeps_it_and_the_signal_is_heard_all_the_same(
    recorder: FlightRecorder, tmp_path: Path
) -> None:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)  # noqa: FBT003 - it takes no keyword
    ours.settimeout(PATIENCE_S)
    before = signal.set_wakeup_fd(theirs.fileno())
    try:
        os.kill(os.getpid(), signal.SIGUSR2)
        assert ours.recv(10) == bytes([signal.SIGUSR2])
        until(lambda: len(dumps(tmp_path)) == 1)
        recorder.close()
        assert signal.set_wakeup_fd(-1) == theirs.fileno()
        assert before >= 0
    finally:
        signal.set_wakeup_fd(-1)
        ours.close()
        theirs.close()


@pytest.mark.usefixtures("recorder")
def test_the_signal_interrupts_no_system_call(tmp_path: Path) -> None:
    import ctypes  # noqa: PLC0415 - for this test alone

    reading, writing = os.pipe()
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(1)

    def signal_then_write() -> None:
        for _ in range(3):  # while the first is dumped, if not before, the main thread comes to its read
            before = len(dumps(tmp_path))
            os.kill(os.getpid(), signal.SIGUSR2)
            until(partial(is_more_than, before))
        os.write(writing, b"x")

    def is_more_than(count: int) -> bool:
        return len(dumps(tmp_path)) > count

    thread = threading.Thread(target=signal_then_write)
    thread.start()
    assert libc.read(reading, buffer, 1) == 1, os.strerror(ctypes.get_errno())
    thread.join()
    os.close(reading)
    os.close(writing)


class OwnError(Exception):
    """Raised on purpose."""


def test_an_exception_that_ends_a_thread_is_a_crash_and_is_told_to_whoever_was_told_before(
    probe: StepProbe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[object] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: told.append(args.exc_type))

    def fail() -> None:
        msg = "a secret prompt"
        raise OwnError(msg)

    with FlightRecorder(probe, FlightOptions(folder=tmp_path), virtual=False):
        for _ in range(2):
            thread = threading.Thread(target=fail)
            thread.start()
            thread.join()
    (dump,) = dumps(tmp_path)  # the second of a type is passed over
    assert (dump.cause, dump.detail) == (Cause.EXCEPTION, f"{OwnError.__module__}.OwnError")
    assert told == [OwnError, OwnError]


def test_leaving_by_an_exception_is_a_crash_and_a_users_mistake_is_none(probe: StepProbe, tmp_path: Path) -> None:
    def leave_by(error: BaseException) -> None:
        with pytest.raises(type(error)), FlightRecorder(probe, FlightOptions(folder=tmp_path), virtual=False):
            raise error

    leave_by(ConfigError("mend it"))
    assert dumps(tmp_path) == []
    leave_by(KeyboardInterrupt())
    assert [dump.detail for dump in dumps(tmp_path)] == ["builtins.KeyboardInterrupt"]


def test_off_the_main_thread_it_goes_without_the_signal(
    probe: StepProbe, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = signal.getsignal(signal.SIGUSR2)

    def serve() -> None:
        with FlightRecorder(probe, FlightOptions(folder=tmp_path), virtual=False) as recorder:
            assert signal.getsignal(signal.SIGUSR2) is before
            recorder.dump()

    thread = threading.Thread(target=serve)
    thread.start()
    thread.join()
    assert [dump.cause for dump in dumps(tmp_path)] == [Cause.ASKED]
    assert "the main thread alone can install it" in caplog.text


def test_a_dump_that_fails_is_logged_and_nothing_else_happens(
    recorder: FlightRecorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(StepProbe, "now_ns", lambda _: 1 / 0)
    assert recorder.dump() is None
    assert "no dump (asked)" in caplog.text
    monkeypatch.undo()
    assert recorder.dump() is not None
    assert len(dumps(tmp_path)) == 1


def test_no_garbage_is_collected_while_a_dump_is_made(
    recorder: FlightRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []

    def look(_: StepProbe) -> int:
        seen.append(gc.isenabled())
        return 1

    monkeypatch.setattr(StepProbe, "now_ns", look)
    recorder.dump()
    assert seen == [False]
    assert gc.isenabled()
