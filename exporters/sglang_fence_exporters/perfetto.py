"""The run as a trace file for Perfetto: tracks of the host and both streams, and arrows along which fences let go.

The serving thread puts a sampled step into a bounded queue and goes on; a thread of its own writes the file, in small
pieces with pauses between, since both threads share Python's one lock.
"""

from __future__ import annotations

import logging
import time
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING

from sglang_fence.errors import ConfigError
from sglang_fence.observe.observer import Observer
from sglang_fence_exporters.perfetto_file import TraceFile
from sglang_fence_exporters.perfetto_packets import Packets
from sglang_fence_exporters.perfetto_timeline import Timeline

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sglang_fence.observe.exporting import ExportContext
    from sglang_fence.observe.trace import StepTrace

logger = logging.getLogger(__name__)

QUEUE = 4096
"""So many steps wait for the writer at the most."""

PIECE = 4
"""Packets between two pauses: some 60 µs of Python."""

PAUSE_S = 20e-6
"""Long enough that whoever waits for Python's lock gets it; a sleep of 0 gives it up and takes it straight back."""

FINISH_S = 30.0
"""So long the end of the run waits for the writer; a disk that hangs doesn't hold it for ever."""


class PerfettoExporter(Observer):
    """Writes sampled steps to ``file``, and gives it its name when the run ends.

    Args:
        file: what to write to.
        wait_when_full: whether a step waits for a place in the queue rather than be dropped. For virtual time, which
            stands still meanwhile: whether steps are dropped would depend on the machine's speed.
    """

    def __init__(self, file: TraceFile, *, wait_when_full: bool = False) -> None:
        self._file = file
        self._wait_when_full = wait_when_full
        self._queue: SimpleQueue[StepTrace | None] = SimpleQueue()
        self._turned_away = 0
        self._failed = 0
        self._ended = False
        self._timeline = Timeline(Packets(file.stream))
        self._writer = Thread(target=self._write, name="sglang-fence-perfetto", daemon=True)
        self._writer.start()

    def step_traced(self, trace: StepTrace) -> None:
        """Leave it to the writer, if there is room."""
        while self._queue.qsize() >= QUEUE or self._ended:
            if not self._wait_when_full or self._ended:
                self._turned_away += 1
                return
            time.sleep(PAUSE_S)
        self._queue.put(trace)

    def run_ended(self) -> None:
        """Finish the file. Waits for the writer, :data:`FINISH_S` at the most; says so where the file isn't there."""
        self._ended = True
        self._queue.put(None)
        self._writer.join(FINISH_S)
        if self._writer.is_alive():
            logger.error("the Perfetto trace %s isn't finished after %.0f s: given up", self._file.path, FINISH_S)
        if self.dropped_steps:
            logger.warning("the Perfetto trace %s lacks %d steps", self._file.path, self.dropped_steps)

    @property
    def dropped_steps(self) -> int:
        """Steps that aren't in the file: the queue was full, or they couldn't be written."""
        return self._turned_away + self._failed

    def _write(self) -> None:
        """Write until the run ends. Goes on taking steps after an error of the file, so that none pile up."""
        broken = False
        while (trace := self._queue.get()) is not None:
            if broken:
                self._failed += 1
                continue
            try:
                self._take_breaks(self._timeline.add(trace))
            except OSError as error:
                broken = True
                self._failed += 1
                self._give_up(error)
            except Exception:
                self._failed += 1
                if self._failed == 1:
                    logger.exception("step %d can't be drawn; the Perfetto trace goes on without it", trace.step)
        if broken:
            return
        try:
            self._timeline.finish()
            self._file.keep()
        except OSError as error:
            self._give_up(error)

    def _take_breaks(self, packets: Iterable[None]) -> None:
        for done, _ in enumerate(packets, 1):
            if done % PIECE == 0 and not self._ended:
                time.sleep(PAUSE_S)

    def _give_up(self, error: OSError) -> None:
        logger.error("the Perfetto trace %s can't be written: %s; there will be none", self._file.path, error)
        self._file.discard()


def make(context: ExportContext) -> Observer:
    """Make the exporter; what the entry point ``perfetto`` names.

    Raises:
        ConfigError: no file is named, or it can't be written.
    """
    if context.perfetto is None:
        msg = "the Perfetto exporter needs a file to write: name one with --perfetto FILE"
        raise ConfigError(msg)
    return PerfettoExporter(TraceFile(context.perfetto), wait_when_full=context.virtual_time)
