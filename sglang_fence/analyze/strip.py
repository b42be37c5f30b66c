"""A copy of a capture that may be shared.

A capture holds every environment variable of the server, its host's name, all processes and many paths. The copy is
written anew, table by table, from the columns that the analysis reads, so what is not listed can't be in it: names of
kernels and foreign ranges are left out, and processes and threads are numbered from 1.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from sglang_fence.analyze.capture import Capture, opened
from sglang_fence.analyze.ranges import OUR_EVENTS, OUR_EVENTS_VALUES
from sglang_fence.analyze.tables import (
    ABOUT,
    CALLS,
    NVTX_DOMAIN,
    RANGES,
    STRINGS,
    SYNC_STREAM_WAIT,
    TABLES,
    WAITS,
    SourceTable,
)
from sglang_fence.catalogue.ranges import NVTX_DOMAIN as OUR_DOMAIN
from sglang_fence.catalogue.ranges import NVTX_RANGES
from sglang_fence.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAMES = frozenset(found.name for found in NVTX_RANGES)
_VERSIONS = frozenset({"EXPORT_PRODUCT_NAME", "EXPORT_PRODUCT_VERSION", "EXPORT_SCHEMA_VERSION"})
_LAUNCH_ID = 1
_LAUNCH_NAME = "cudaGraphLaunch"
_LAUNCH_ROWS = """
    SELECT c.start, c.globalTid, c.correlationId FROM call c JOIN string s ON s.id = c.nameId
    WHERE s.value LIKE '%GraphLaunch%'
"""
_PROCESS_SHIFT = 24

Row = tuple[int | str | None, ...]


class _Numbers:
    """Processes and threads, numbered in the order in which they are met."""

    def __init__(self) -> None:
        self._processes: dict[int, int] = {}
        self._threads: dict[int, int] = {}

    def process(self, found: int) -> int:
        """Return what stands for a ``globalPid``."""
        return self._processes.setdefault(found >> _PROCESS_SHIFT, len(self._processes) + 1) << _PROCESS_SHIFT

    def thread(self, found: int) -> int:
        """Return what stands for a ``globalTid``."""
        return self.process(found) | self._threads.setdefault(found, len(self._threads) + 1)


def strip(source: Path, target: Path) -> None:
    """Write a copy of ``source`` that holds only what the analysis reads.

    Raises:
        ConfigError: the source can't be read, or the target is there already or can't be written.
    """
    if target.exists():
        msg = f"{target} is there already: name a file that isn't, for the copy"
        raise ConfigError(msg)
    part = target.with_name(target.name + ".part")
    try:
        with opened(source) as capture, closing(sqlite3.connect(part)) as made:
            numbers = _Numbers()
            for table in TABLES:
                if capture.has(table):
                    _copy(capture, made, table, numbers)
            made.commit()
        part.replace(target)
    except (sqlite3.OperationalError, OSError) as error:
        msg = f"{target} can't be written ({error}): name a file in a folder that exists and has room"
        raise ConfigError(msg) from error
    finally:
        part.unlink(missing_ok=True)


def _copy(capture: Capture, made: sqlite3.Connection, table: SourceTable, numbers: _Numbers) -> None:
    # Columns that the source lacks stay away, so that the copy's analysis misses what the source's does.
    lacking = capture.missing.get(table.name, ())
    kept = [index for index, column in enumerate(table.columns) if column not in lacking]
    columns = ", ".join(f'"{table.columns[index]}"' for index in kept)
    made.execute(f'CREATE TABLE "{table.name}" ({columns})')
    places = ", ".join("?" * len(kept))
    # Every name is from our own list of tables.
    insert = f'INSERT INTO "{table.name}" VALUES ({places})'  # noqa: S608
    made.executemany(insert, (tuple(row[index] for index in kept) for row in _rows(capture, table, numbers)))


def _rows(capture: Capture, table: SourceTable, numbers: _Numbers) -> Iterator[Row]:
    if table is RANGES:
        yield from _our_ranges(capture, numbers)
    elif table is CALLS:
        for start, thread, correlation in capture.rows(_LAUNCH_ROWS):
            yield start, numbers.thread(thread), correlation, _LAUNCH_ID
    elif table is STRINGS:
        yield _LAUNCH_ID, _LAUNCH_NAME
    elif table is ABOUT:
        yield from ((name, value) for name, value in capture.rows("SELECT name, value FROM about") if name in _VERSIONS)
    else:
        renumber = [
            numbers.process if column == "globalPid" else numbers.thread if column == "globalTid" else None
            for column in table.columns
        ]
        kind = table.columns.index("syncType") if table is WAITS else None
        for row in capture.rows(f"SELECT * FROM {table.view}"):  # noqa: S608 - a name from our own list
            if kind is None or row[kind] == SYNC_STREAM_WAIT:
                yield tuple(value if do is None else do(value) for value, do in zip(row, renumber, strict=True))


def _our_ranges(capture: Capture, numbers: _Numbers) -> Iterator[Row]:
    named: set[int] = set()
    for start, end, name, thread, step, kind in capture.rows(OUR_EVENTS, OUR_EVENTS_VALUES):
        if name not in _NAMES:
            continue
        mine = numbers.thread(thread)
        if mine not in named:
            named.add(mine)
            yield start, None, NVTX_DOMAIN, OUR_DOMAIN, mine, None, 1, None
        yield start, end, kind, name, mine, None, 1, step
