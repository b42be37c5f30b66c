"""Opening a capture: a file of Nsight Systems as a database in which each table that we read exists."""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from sglang_fence.analyze.exporting import exported
from sglang_fence.analyze.tables import KERNELS, TABLES, WAITS, WHOLE_GRAPHS, SourceTable
from sglang_fence.errors import ConfigError
from sglang_fence.garbage import no_garbage_collection

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

HOW = "capture with nsys profile --trace=cuda,nvtx --cuda-graph-trace=node"


class Capture:
    """A capture, opened for reading.

    Each listed table is a view that has exactly the listed columns, null where this capture lacks them, so that one
    query serves every version of the tool.
    """

    def __init__(self, path: Path, database: sqlite3.Connection) -> None:
        self.path = path
        self._database = database
        self.missing: dict[str, tuple[str, ...]] = {}
        """Columns that the capture lacks, by table; all of them where the table is missing."""
        names = self.rows("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
        present: set[str] = {name for (name,) in names}
        if not present & {table.name for table in TABLES}:
            msg = f"{path} is a database, but not of Nsight Systems: give what nsys export --type=sqlite wrote"
            raise ConfigError(msg)
        # Millions of rows are grouped: in memory, up to a quarter of a GiB, rather than through a small cache.
        self._database.execute("PRAGMA cache_size = -262144")
        for table in TABLES:
            self._view(table, table.name in present)

    def rows(self, sql: str, values: tuple[object, ...] = ()) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query.

        Raises:
            ConfigError: the file is damaged.
        """
        try:
            yield from self._database.execute(sql, values)
        except sqlite3.DatabaseError as error:
            msg = f"{self.path} can't be read ({error}): it is no SQLite export of Nsight Systems, or cut short; {HOW}"
            raise ConfigError(msg) from error

    def put(self, sql: str, rows: Iterator[tuple[int, ...]]) -> None:
        """Keep rows in a temporary table, for a query to join."""
        self._database.executemany(sql, rows)

    def execute(self, sql: str) -> None:
        """Run a statement that touches temporary tables alone."""
        self._database.execute(sql)

    def has(self, table: SourceTable) -> bool:
        """Whether the capture has the table at all."""
        return len(self.missing.get(table.name, ())) < len(table.columns)

    def require_device_rows(self) -> None:
        """Refuse a capture in which nothing ran on a device.

        Raises:
            ConfigError: CUDA wasn't traced, or the program used none.
        """
        if not self.has(KERNELS) and not self.has(WHOLE_GRAPHS):
            msg = f"{self.path} has no CUDA rows: CUDA was not traced, or the program used none; {HOW}"
            raise ConfigError(msg)
        if not self.has(WAITS):
            msg = f"{self.path} has no row of a stream that waits, so no fence is in it; {HOW}, on a server that serves"
            raise ConfigError(msg)

    def _view(self, table: SourceTable, present: bool) -> None:  # noqa: FBT001 - private, called once
        found: set[str] = set()
        if present:
            found = {name for (name,) in self.rows("SELECT name FROM pragma_table_info(?)", (table.name,))}
        lacking = tuple(column for column in table.columns if column not in found)
        if lacking:
            self.missing[table.name] = lacking
        columns = ", ".join(f'"{name}"' if name in found else f'NULL AS "{name}"' for name in table.columns)
        # Every name is from our own list.
        source = f'FROM main."{table.name}"' if present else "WHERE 0"
        self._database.execute(f'CREATE TEMP VIEW "{table.view}" AS SELECT {columns} {source}')


@contextmanager
def opened(path: Path) -> Generator[Capture]:
    """Open a capture; one that isn't SQLite yet is exported first.

    Raises:
        ConfigError: it isn't there, isn't a capture, or can't be exported.
    """
    if path.is_dir():
        msg = f"{path} is a folder: name a capture of Nsight Systems in it, .sqlite or .nsys-rep"
        raise ConfigError(msg)
    if not path.is_file():
        msg = f"{path} is not there: name a capture of Nsight Systems, .sqlite or .nsys-rep"
        raise ConfigError(msg)
    with exported(path) as file:
        address = f"{file.resolve().as_uri()}?mode=ro"
        try:
            database = sqlite3.connect(address, uri=True)
        except sqlite3.Error as error:
            msg = f"{path} can't be opened ({error}): name a file that you may read"
            raise ConfigError(msg) from error
        # Millions of rows become objects, none of them in a cycle: looking among them would be a tenth of the time.
        with closing(database), no_garbage_collection():
            yield Capture(path, database)
