"""Captures: real ones, stripped, from an H200, and small ones made by hand."""

from __future__ import annotations

import gzip
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sglang_fence.analyze.tables import NVTX_DOMAIN, NVTX_MARK, NVTX_PUSH_POP, TABLES

if TYPE_CHECKING:
    from collections.abc import Callable

DATA = Path(__file__).parents[1] / "data" / "nsys"
FORWARD, SCHEDULE = 17, 13
PROCESS = 5 << 24
THREAD = PROCESS | 7


class MadeCapture:
    """A capture that is written call by call, as the host would make them. Times are in ns."""

    def __init__(self) -> None:
        self.rows: dict[str, list[tuple[object, ...]]] = {table.name: [] for table in TABLES}
        self.calls = 0
        self._records = 0
        self._strings = 1
        self.rows["StringIds"].append((1, "cudaGraphLaunch_v10000"))

    def work(self, stream: int, start: int, end: int) -> int:
        self.calls += 1
        self.rows["CUPTI_ACTIVITY_KIND_KERNEL"].append((start, end, stream, self.calls, PROCESS, None))
        return self.calls

    def replay(self, start: int, nodes: list[tuple[int, int, int]], graph: int = 2) -> int:
        """Replay a graph behind the schedule stream's preparation; ``nodes`` are number, start and end."""
        self.bind(SCHEDULE, start - 1, FORWARD)
        self.calls += 1
        self.rows["CUPTI_ACTIVITY_KIND_RUNTIME"].append((start, THREAD, self.calls, 1))
        self.rows["CUPTI_ACTIVITY_KIND_KERNEL"] += [
            (begin, end, FORWARD, self.calls, PROCESS, graph << 32 | node) for node, begin, end in nodes
        ]
        return self.calls

    def record(self, stream: int, call: int | None = None) -> int:
        """Record an event, in a call of its own or as a node of the graph that ``call`` launched."""
        if call is None:
            self.calls += 1
            call = self.calls
        self._records += 1
        self.rows["CUPTI_ACTIVITY_KIND_CUDA_EVENT"].append((stream, call, PROCESS, 99, self._records))
        return self._records

    def wait(self, stream: int, called: int, record: int) -> None:
        self.calls += 1
        self.rows["CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"].append(
            (called, stream, self.calls, PROCESS, 2, 99, record),
        )

    def bind(self, recorded_on: int, called: int, waiting: int) -> None:
        """Make one stream wait for all of another."""
        self.wait(waiting, called, self.record(recorded_on))

    def name_range(self, name: str, start: int, end: int | None, step: int) -> None:
        ranges = self.rows["NVTX_EVENTS"]
        if not ranges:
            ranges.append((0, None, NVTX_DOMAIN, "sglang_fence", THREAD, None, 1, None))
        kind = NVTX_MARK if end is None else NVTX_PUSH_POP
        self._strings += 1
        self.rows["StringIds"].append((self._strings, name))
        ranges.append((start, end, kind, None, THREAD, self._strings, 1, step))

    def save(self, path: Path, without: tuple[str, ...] = ()) -> Path:
        with closing(sqlite3.connect(path)) as database:
            for table in TABLES:
                if table.name not in without:
                    columns = ", ".join(f'"{name}"' for name in table.columns)
                    database.execute(f'CREATE TABLE "{table.name}" ({columns})')
                    places = ", ".join("?" * len(table.columns))
                    database.executemany(f'INSERT INTO "{table.name}" VALUES ({places})', self.rows[table.name])  # noqa: S608 - our own names
            database.commit()
        return path


@pytest.fixture
def made() -> MadeCapture:
    return MadeCapture()


@pytest.fixture(scope="session")
def make() -> Callable[[], MadeCapture]:
    """For properties, which make one for each example."""
    return MadeCapture


@pytest.fixture
def real(tmp_path: Path) -> Callable[[str], Path]:
    """Unpack a real capture by name."""

    def unpack(name: str) -> Path:
        path = tmp_path / f"{name}.sqlite"
        path.write_bytes(gzip.decompress((DATA / f"{name}.sqlite.gz").read_bytes()))
        return path

    return unpack
