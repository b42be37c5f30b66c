"""The exporter as it is installed: its file, its queue, and what becomes of both when things go wrong."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from threading import Event, Thread
from typing import TYPE_CHECKING, BinaryIO, cast

import pytest

from sglang_fence.catalogue import Track
from sglang_fence.errors import ConfigError
from sglang_fence.observe.exporting import ExportContext, make_exporter
from sglang_fence.observe.ledger import Ledger
from sglang_fence_exporters.perfetto import QUEUE, PerfettoExporter
from sglang_fence_exporters.perfetto_file import TraceFile
from tests.exporters.perfetto.decoding import decode
from tests.exporters.perfetto.traces import bare, span, steady

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from sglang_fence.observe.observer import Observer
    from sglang_fence.observe.trace import StepTrace

SECONDS = 30.0


def made(path: Path | None, *, virtual_time: bool = False) -> Observer:
    return make_exporter("perfetto", ExportContext(ledger=Ledger(), perfetto=path, virtual_time=virtual_time))


def run(path: Path, traces: Iterable[StepTrace]) -> Observer:
    exporter = made(path)
    for trace in traces:
        exporter.step_traced(trace)
    exporter.run_ended()
    return exporter


def test_a_run_is_written_and_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    names = ("a.pftrace", "b.pftrace")
    exporters = [run(tmp_path / name, map(steady, range(200))) for name in names]
    first, second = ((tmp_path / name).read_bytes() for name in names)
    assert first == second
    decoded = decode(first)
    assert [one.details["sglang_fence.step_id"] for one in decoded.on("step")] == list(range(200))
    assert [exporter.dropped_steps for exporter in exporters] == [0, 0]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted(names)


def test_a_run_without_a_traced_step_is_a_trace_too(tmp_path: Path) -> None:
    run(tmp_path / "none", [])
    decoded = decode((tmp_path / "none").read_bytes())
    assert "schedule stream" in decoded.names.values()
    assert not decoded.slices


def test_an_earlier_file_stands_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text("earlier")
    exporter = made(path)
    exporter.step_traced(steady(0))
    assert path.read_text() == "earlier"
    exporter.run_ended()
    assert len(decode(path.read_bytes()).on("step")) == 1


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    run(tmp_path / "link", [steady(0)])
    assert (tmp_path / "link").is_symlink()
    assert decode((tmp_path / "target").read_bytes()).slices


def test_a_step_after_the_end_is_turned_away(tmp_path: Path) -> None:
    exporter = run(tmp_path / "trace", [])
    exporter.step_traced(steady(0))
    assert exporter.dropped_steps == 1


# Paths that won't do. All are found before anything is written.


def refusal(path: Path | None) -> str:
    with pytest.raises(ConfigError) as caught:
        made(path)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_no_path() -> None:
    assert refusal(None) == "the Perfetto exporter needs a file to write: name one with --perfetto FILE"


def test_a_folder_that_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "trace"
    expected = f"the Perfetto trace can't be written to '{path}' (No such file or directory): name another file"
    assert refusal(path) == expected
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("there", ["folder", "pipe"])
def test_what_is_there_is_no_file(tmp_path: Path, there: str) -> None:
    path = tmp_path / there
    if there == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)
    assert "there is something that isn't a file" in refusal(path)
    assert [entry.name for entry in tmp_path.iterdir()] == [there]


def test_a_file_where_a_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "(Not a directory)" in refusal(tmp_path / "file" / "trace")


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is write-protected for root")
def test_a_file_that_is_write_protected(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.touch(0o444)
    assert "(the file that is there is write-protected)" in refusal(path)


# Runs that go wrong.

PREAMBLE = """
import os, resource, sys, logging
from pathlib import Path
from sglang_fence.observe.exporting import ExportContext, make_exporter
from sglang_fence.observe.ledger import Ledger
from tests.exporters.perfetto.traces import steady
logging.basicConfig(format="%(levelname)s %(message)s")
exporter = make_exporter("perfetto", ExportContext(ledger=Ledger(), perfetto=Path(sys.argv[1])))
"""


def process(path: Path, body: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PREAMBLE + body, str(path)], check=False, capture_output=True, text=True, timeout=120
    )


def test_a_run_that_breaks_off_leaves_nothing_and_what_was_there_before(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text("earlier")
    done = process(path, "for step in range(100): exporter.step_traced(steady(step))\nraise SystemExit(7)\n")
    assert (done.returncode, done.stderr) == (7, "")
    assert path.read_text() == "earlier"
    assert list(tmp_path.iterdir()) == [path]


def test_a_run_that_is_killed_leaves_no_trace_by_that_name(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    done = process(path, "exporter.step_traced(steady(0))\nos.kill(os.getpid(), 9)\n")
    assert done.returncode == -9
    assert not path.exists()
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".trace.")
    assert left.name.endswith(".partial")


def test_a_disk_that_is_full_ends_the_trace_and_not_the_run(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    body = """
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
for step in range(500): exporter.step_traced(steady(step))
exporter.run_ended()
print(exporter.dropped_steps)
"""
    done = process(path, body)
    assert done.returncode == 0
    assert 0 < int(done.stdout) <= 500
    first, second = done.stderr.splitlines()
    assert first.startswith(f"ERROR the Perfetto trace {path} can't be written: ")
    assert first.endswith("File too large; there will be none")
    assert second == f"WARNING the Perfetto trace {path} lacks {done.stdout.strip()} steps"
    assert not list(tmp_path.iterdir())


def test_a_step_that_cannot_be_drawn_is_counted_and_the_others_are_there(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    odd = bare(1, 0, 10, [span("nonsense", Track.HOST, 0, 1)])
    exporter = run(tmp_path / "trace", [steady(0), odd, odd, steady(3)])
    assert exporter.dropped_steps == 2
    steps = decode((tmp_path / "trace").read_bytes()).on("step")
    assert [one.details["sglang_fence.step_id"] for one in steps] == [0, 3]
    drawn, lacking = (record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING)
    assert drawn == "step 1 can't be drawn; the Perfetto trace goes on without it"
    assert lacking == f"the Perfetto trace {tmp_path / 'trace'} lacks 2 steps"


# A disk that is slower than the run.


class SlowDisk:
    """Passes on what is written, once it may."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.reached = Event()
        self.opened = Event()

    def write(self, content: bytes) -> int:
        self.reached.set()
        assert self.opened.wait(SECONDS)
        return self._stream.write(content)

    def close(self) -> None:
        self._stream.close()


def on_slow_disk(path: Path, *, wait_when_full: bool) -> tuple[PerfettoExporter, SlowDisk]:
    """Return an exporter whose writer has taken one step and hangs on the disk."""
    file = TraceFile(path)
    disk = SlowDisk(file.stream)
    file.stream = cast("BinaryIO", disk)
    exporter = PerfettoExporter(file, wait_when_full=wait_when_full)
    exporter.step_traced(steady(0))
    assert disk.reached.wait(SECONDS)
    return exporter, disk


def test_steps_that_find_the_queue_full_are_dropped_and_counted(tmp_path: Path) -> None:
    exporter, disk = on_slow_disk(tmp_path / "trace", wait_when_full=False)
    for step in range(1, QUEUE + 6):
        exporter.step_traced(bare(step, step, step))
    assert exporter._queue.qsize() == QUEUE
    assert exporter.dropped_steps == 5
    disk.opened.set()
    exporter.run_ended()
    steps = decode((tmp_path / "trace").read_bytes()).on("step")
    assert sorted(cast("int", one.details["sglang_fence.step_id"]) for one in steps) == list(range(QUEUE + 1))


def test_in_virtual_time_they_wait_instead(tmp_path: Path) -> None:
    exporter, disk = on_slow_disk(tmp_path / "trace", wait_when_full=True)
    for step in range(1, QUEUE + 1):
        exporter.step_traced(bare(step, step, step))
    last = Thread(target=exporter.step_traced, args=(bare(QUEUE + 1, QUEUE + 1, QUEUE + 1),), daemon=True)
    last.start()
    assert exporter._queue.qsize() == QUEUE
    disk.opened.set()
    last.join(SECONDS)
    assert not last.is_alive()
    exporter.run_ended()
    assert exporter.dropped_steps == 0
    assert len(decode((tmp_path / "trace").read_bytes()).on("step")) == QUEUE + 2


@pytest.mark.parametrize("virtual_time", [False, True])
def test_only_virtual_time_makes_steps_wait(tmp_path: Path, *, virtual_time: bool) -> None:
    exporter = made(tmp_path / "trace", virtual_time=virtual_time)
    assert isinstance(exporter, PerfettoExporter)
    assert exporter._wait_when_full is virtual_time
    exporter.run_ended()


def test_a_disk_that_hangs_does_not_hold_the_end_of_the_run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("sglang_fence_exporters.perfetto.FINISH_S", 0.01)
    exporter, disk = on_slow_disk(tmp_path / "trace", wait_when_full=False)
    exporter.run_ended()
    assert "isn't finished after 0 s: given up" in caplog.text
    assert not (tmp_path / "trace").exists()
    disk.opened.set()
    exporter._writer.join(SECONDS)
    assert not exporter._writer.is_alive()
