"""The plugin's switches, and the file that changes two of them on a live server."""

from __future__ import annotations

import json
import logging
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sglang_fence.observe.sampling import Sampling
from sglang_fence.sglang_plugin.control import ControlFile
from sglang_fence.sglang_plugin.switches import SWITCHES, Switches, problems

if TYPE_CHECKING:
    from collections.abc import Generator


def test_the_defaults_are_those_of_the_table() -> None:
    assert Switches.from_environ({}) == Switches.from_environ({row.name: row.default for row in SWITCHES}) == Switches()


@pytest.mark.parametrize(
    ("name", "raw", "field", "value"),
    [
        ("SGLANG_FENCE", "0", "on", False),
        ("SGLANG_FENCE", "No", "on", False),
        ("SGLANG_FENCE_TIMING_EVERY", "4", "timing_every", 4),
        ("SGLANG_FENCE_TIMING_EVERY", "0", "timing_every", 0),
        ("SGLANG_FENCE_TRACE_RATIO", "0.25", "trace_ratio", 0.25),
        ("SGLANG_FENCE_NVTX", "true", "nvtx", True),
        ("SGLANG_FENCE_METRICS_PORT", "9400", "metrics_port", 9400),
        ("SGLANG_FENCE_PROFILE_STEPS", "100:120", "profile_steps", (100, 120)),
        ("SGLANG_FENCE_CONTROL", "a/b.json", "control", Path("a/b.json")),
        ("SGLANG_FENCE_FLIGHT_RECORDER", "0", "flight_recorder", 0),
        ("SGLANG_FENCE_FLIGHT_RECORDER", "64", "flight_recorder", 64),
        ("SGLANG_FENCE_FLIGHT_DIR", "a/dumps", "flight_dir", Path("a/dumps")),
        ("SGLANG_FENCE_WATCHDOG", "2.5", "watchdog", 2.5),
        ("SGLANG_FENCE_WATCHDOG", "0", "watchdog", 0.0),
    ],
)
def test_each_switch_is_read(name: str, raw: str, field: str, value: object) -> None:
    assert getattr(Switches.from_environ({name: raw}), field) == value
    assert problems({name: raw}) == {}


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("SGLANG_FENCE", "perhaps"),
        ("SGLANG_FENCE_TIMING_EVERY", "-1"),
        ("SGLANG_FENCE_TIMING_EVERY", "often"),
        ("SGLANG_FENCE_TRACE_RATIO", "1.5"),
        ("SGLANG_FENCE_TRACE_RATIO", "nan"),
        ("SGLANG_FENCE_METRICS_PORT", "70000"),
        ("SGLANG_FENCE_METRICS_PORT", "0"),
        ("SGLANG_FENCE_PROFILE_STEPS", "120:100"),
        ("SGLANG_FENCE_PROFILE_STEPS", "100"),
        ("SGLANG_FENCE_FLIGHT_RECORDER", "1000000"),
        ("SGLANG_FENCE_WATCHDOG", "-1"),
        ("SGLANG_FENCE_WATCHDOG", "0.01"),
        ("SGLANG_FENCE_WATCHDOG", "nan"),
    ],
)
def test_what_cant_be_used_is_its_default_and_is_told(name: str, raw: str) -> None:
    assert Switches.from_environ({name: raw}) == Switches()
    assert list(problems({name: raw})) == [name]
    assert raw in problems({name: raw})[name]


class Controlled:
    """A control file, looked at by hand."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sampling = Sampling(timing_every=16)
        self.changes = 0
        self.file = ControlFile(path, self.sampling, self._changed, interval_s=3600.0)

    def _changed(self) -> None:
        self.changes += 1

    def write(self, text: str) -> None:
        self.path.write_text(text)
        stamp = self.path.stat().st_mtime_ns + 1_000_000_000 * (self.changes + 1)
        os.utime(self.path, ns=(stamp, stamp))
        self.file.look()


@pytest.fixture
def controlled(tmp_path: Path) -> Generator[Controlled]:
    one = Controlled(tmp_path / "control.json")
    yield one
    one.file.close()


def test_a_change_of_the_file_is_applied_once(controlled: Controlled) -> None:
    controlled.file.look()
    assert controlled.changes == 0
    controlled.write(json.dumps({"timing_every": 4}))
    controlled.file.look()
    assert (controlled.sampling.timing_every, controlled.sampling.trace_ratio, controlled.changes) == (4, 0.0, 1)
    controlled.write(json.dumps({"trace_ratio": 0.5}))
    assert (controlled.sampling.timing_every, controlled.sampling.trace_ratio, controlled.changes) == (4, 0.5, 2)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"timing_every": -1}',
        '{"trace_ratio": 2}',
        '{"timing": 4}',
        '{"timing_every": null}',
        '{"timing_every": 4, "profile_seconds": 10}',  # nothing here can be profiled
    ],
)
def test_a_file_that_cant_be_used_changes_nothing_and_is_warned_of_once(
    controlled: Controlled, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        controlled.write(text)
        controlled.file.look()
    assert (controlled.sampling.timing_every, controlled.sampling.trace_ratio, controlled.changes) == (16, 0.0, 0)
    assert len(caplog.records) == 1


def test_the_thread_looks_by_itself_and_ends(tmp_path: Path) -> None:
    path, sampling, changed = tmp_path / "control.json", Sampling(), threading.Event()
    file = ControlFile(path, sampling, changed.set, interval_s=0.01)
    path.write_text('{"timing_every": 2}')
    assert changed.wait(20)
    assert sampling.timing_every == 2
    file.close()
    assert "sglang-fence-control" not in {thread.name for thread in threading.enumerate()}
