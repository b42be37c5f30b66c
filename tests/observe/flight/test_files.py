"""Dumps are written whole or not at all, are their owner's, and are bounded in number."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from sglang_fence.errors import ConfigError
from sglang_fence.observe.flight.files import KEEP_ALL, KEEP_OWN, DumpFiles

if TYPE_CHECKING:
    from pathlib import Path


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_dump_is_named_by_rank_process_number_and_cause(tmp_path: Path) -> None:
    written = DumpFiles(tmp_path / "new" / "folder", "dp0-tp1")
    assert not list(tmp_path.iterdir())  # it is made when there is something to put into it
    path = written.write("text", "signal")
    assert path == tmp_path / "new" / "folder" / f"sglang-fence-flight-rankdp0-tp1-pid{os.getpid()}-1-signal.json"
    assert path.read_text(encoding="utf-8") == "text"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert written.write("more", "watchdog").name.endswith("-2-watchdog.json")


def test_a_rank_cant_lead_out_of_the_folder(tmp_path: Path) -> None:
    path = DumpFiles(tmp_path, "../../etc/x y").write("text", "signal")
    assert path.parent == tmp_path
    assert names(tmp_path) == {path.name}


def test_a_processs_oldest_go_first(tmp_path: Path) -> None:
    written = DumpFiles(tmp_path, "0")
    paths = [written.write(str(number), "signal") for number in range(KEEP_OWN + 3)]
    assert names(tmp_path) == {path.name for path in paths[3:]}


def test_those_of_processes_that_are_gone_are_bounded_too_and_nothing_else_is_touched(tmp_path: Path) -> None:
    for number in range(KEEP_ALL + 5):
        old = tmp_path / f"sglang-fence-flight-rank0-pid{number}-1-exception.json"
        old.write_text("", encoding="utf-8")
        os.utime(old, ns=(number, number))
    other = tmp_path / "sglang-fence-flight-rank0.json"
    other.write_text("", encoding="utf-8")
    os.utime(other, ns=(0, 0))
    path = DumpFiles(tmp_path, "0").write("text", "signal")
    left = names(tmp_path)
    assert len(left) == KEEP_ALL + 1
    assert {path.name, other.name} <= left
    assert "sglang-fence-flight-rank0-pid5-1-exception.json" not in left
    assert "sglang-fence-flight-rank0-pid6-1-exception.json" in left


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    half_a_pair = "text \ud800"  # UTF-8 has no such thing
    with pytest.raises(UnicodeEncodeError):
        DumpFiles(tmp_path, "0").write(half_a_pair, "signal")
    assert names(tmp_path) == set()


def test_a_folder_that_cant_be_is_refused_at_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    for folder in (
        tmp_path / "file",
        tmp_path / "file" / "below",
        tmp_path / "nowhere" / "below",
        tmp_path / ("n" * 300),
    ):
        with pytest.raises(ConfigError, match="name a folder that can be made and written"):
            DumpFiles(folder, "0")
