"""A live server is profiled for some seconds, by its control file or from step to step, and pays nothing otherwise."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

import pytest

from sglang_fence.device.cuda_profiler import Profiler
from sglang_fence.observe.sampling import Sampling
from sglang_fence.sglang_plugin.control import ControlFile
from sglang_fence.sglang_plugin.profiling import MOST_S, TimedProfile, seconds

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DEADLINE_S = 20


class Heard:
    """A profiler's switch that notes when it is told."""

    def __init__(self, start: Callable[[], None] = lambda: None) -> None:
        self.began, self.ended = threading.Event(), threading.Event()
        self.threads: list[threading.Thread] = []
        self._start = start

    def start(self) -> None:
        self.threads.append(threading.current_thread())
        self._start()
        self.began.set()

    def stop(self) -> None:
        self.ended.set()

    @property
    def profiler(self) -> Profiler:
        return Profiler(self.start, self.stop)


def test_a_capture_begins_and_ends_on_a_thread_of_its_own() -> None:
    heard = Heard()
    profile = TimedProfile(heard.profiler)
    profile.begin(0.01)
    assert heard.began.wait(DEADLINE_S)
    assert heard.ended.wait(DEADLINE_S)
    assert threading.current_thread() not in heard.threads
    profile.close()


def test_the_end_of_the_server_ends_a_capture_early() -> None:
    heard = Heard()
    profile = TimedProfile(heard.profiler)
    profile.begin(MOST_S)
    assert heard.began.wait(DEADLINE_S)
    assert not heard.ended.is_set()
    profile.close()
    assert heard.ended.is_set()
    assert "sglang-fence-profile" not in {thread.name for thread in threading.enumerate()}


def test_a_second_capture_at_the_same_time_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    heard = Heard()
    profile = TimedProfile(heard.profiler)
    profile.begin(MOST_S)
    assert heard.began.wait(DEADLINE_S)
    with caplog.at_level(logging.WARNING):
        profile.begin(1.0)
    profile.close()
    assert len(heard.threads) == 1
    assert "under way" in caplog.text


def test_a_profiler_that_fails_is_logged_and_serving_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        msg = "no profiler"
        raise RuntimeError(msg)

    heard = Heard(fail)
    profile = TimedProfile(heard.profiler)
    with caplog.at_level(logging.ERROR):
        profile.begin(1.0)
        profile.close()
    assert "can't be told" in caplog.text
    assert not heard.ended.is_set()


def test_the_control_file_begins_one_each_time_it_changes(tmp_path: Path) -> None:
    asked: list[float] = []
    path, sampling = tmp_path / "control.json", Sampling(timing_every=7)
    file = ControlFile(path, sampling, lambda: None, profile=asked.append, interval_s=3600.0)
    path.write_text('{"profile_seconds": 10}', encoding="utf-8")
    file.look()
    file.look()
    assert asked == [10.0]
    assert sampling.timing_every == 7
    file.close()


@pytest.mark.parametrize("raw", [0, -1, MOST_S + 1, float("nan")])
def test_a_length_that_is_none_is_refused(raw: float) -> None:
    with pytest.raises(ValueError, match="profile_seconds"):
        seconds(raw)
