"""The copy that may be shared: it gives the same answer, and nothing else."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from sglang_fence.analyze.report import analyse
from sglang_fence.analyze.serialising import to_json
from sglang_fence.analyze.strip import strip
from sglang_fence.analyze.tables import TABLES
from sglang_fence.catalogue.ranges import NVTX_RANGES
from sglang_fence.errors import ConfigError
from tests.analyze.expectations import names

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.analyze.conftest import MadeCapture

SECRET = b"hunter2"
FORWARD, SCHEDULE = 17, 13
ALLOWED_TEXTS = {found.name for found in NVTX_RANGES} | {
    "sglang_fence",
    "cudaGraphLaunch",
    "EXPORT_PRODUCT_NAME",
    "EXPORT_PRODUCT_VERSION",
    "EXPORT_SCHEMA_VERSION",
    "NVIDIA Nsight Systems",
    "2025.3.2.0",
    "3.20.3",
}


def run(made: MadeCapture, path: Path) -> Path:
    call = made.replay(500, [(0, 1000, 2000), (2, 3000, 9000)])
    made.work(SCHEDULE, 10, 20)
    made.name_range("barrier", 600, 700, 7)
    made.wait(SCHEDULE, 650, made.record(FORWARD, call))
    made.name_range("barrier.fine", 660, None, 7)
    return made.save(path)


def test_nothing_private_is_kept(made: MadeCapture, tmp_path: Path) -> None:
    made.name_range("tenant hunter2", 1, 2, 7)
    made.rows["META_DATA_EXPORT"] += [("EXPORT_HOST", "hunter2"), ("EXPORT_PRODUCT_VERSION", "2025.3.2.0")]
    made.rows["StringIds"].append((500, "the kernel of hunter2"))
    source = run(made, tmp_path / "source.sqlite")
    with closing(sqlite3.connect(source)) as database:
        database.execute("CREATE TABLE TARGET_INFO_SYSTEM_ENV (name, value)")
        database.execute("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES ('PASSWORD', 'hunter2')")
        # A foreign domain, whose number is another.
        database.execute("INSERT INTO NVTX_EVENTS VALUES (1, 2, 59, 'barrier hunter2', 83886087, NULL, 9, 0)")
        database.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN shortName")
        database.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET shortName = 'hunter2'")
        database.commit()
    copy = tmp_path / "copy.sqlite"
    strip(source, copy)
    assert SECRET in source.read_bytes()
    assert SECRET not in copy.read_bytes()
    assert to_json(analyse(copy)) == to_json(analyse(source))
    with closing(sqlite3.connect(copy)) as database:
        assert database.execute("SELECT DISTINCT globalPid FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchall() == [(1 << 24,)]


@pytest.mark.parametrize("name", names())
def test_the_committed_captures_hold_no_text_but_ours(real: Callable[[str], Path], name: str) -> None:
    listed = {table.name: set(table.columns) for table in TABLES}
    with closing(sqlite3.connect(real(name))) as database:
        for (table,) in database.execute("SELECT name FROM sqlite_master").fetchall():
            columns = [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]
            assert set(columns) <= listed[table]
            for column in columns:
                query = f'SELECT DISTINCT "{column}" FROM "{table}" WHERE typeof("{column}") NOT IN (?, ?)'  # noqa: S608 - from the file itself
                texts = {text for (text,) in database.execute(query, ("integer", "null"))}
                assert texts <= ALLOWED_TEXTS


def test_a_copy_of_a_copy_is_the_same(real: Callable[[str], Path], tmp_path: Path) -> None:
    source = real("breakable")
    copy = tmp_path / "copy.sqlite"
    strip(source, copy)
    assert copy.read_bytes() == source.read_bytes()


def test_what_is_there_already_stays(made: MadeCapture, tmp_path: Path) -> None:
    source = run(made, tmp_path / "source.sqlite")
    before = source.read_bytes()
    with pytest.raises(ConfigError, match="is there already"):
        strip(source, source)
    assert source.read_bytes() == before


def test_a_folder_that_is_not_there(made: MadeCapture, tmp_path: Path) -> None:
    source = run(made, tmp_path / "source.sqlite")
    with pytest.raises(ConfigError, match="can't be written"):
        strip(source, tmp_path / "none" / "copy.sqlite")


def test_the_command_writes_copy_json_and_tables(real: Callable[[str], Path], tmp_path: Path) -> None:
    source, copy, written = real("full"), tmp_path / "copy.sqlite", tmp_path / "steps.json"
    command = [sys.executable, "-m", "sglang_fence", "nsys", str(source), "--json", str(written), "--strip", str(copy)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(written.read_text(encoding="utf-8"))
    assert found == to_json(analyse(copy))
    assert [step["step"] for step in found["steps"]] == list(range(25))
    assert found["steps"][10]["replays"][0]["marker_node"] == 8
    launched = [replay["launched_us"] for step in found["steps"] for replay in step["replays"]]
    assert launched == sorted(launched)
    assert [(row["mode"], row["fine"], row["coarse"]) for row in found["summary"]] == [
        ("extend", 0, 2),
        ("decode", 23, 0),
    ]
    assert done.stdout.count("fine IN_REPLAY") == 23
    assert "Inferred: " in done.stdout
