"""Where dumps go: written whole or not at all, readable by their owner alone, and bounded in number."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from sglang_fence.errors import ConfigError

KEEP_OWN = 8
"""Dumps of one process that are kept; its oldest goes first."""

KEEP_ALL = 256
"""Dumps of all processes that are kept in one folder, so that a server that crashes again and again can't fill it."""

_NAME = re.compile(r"sglang-fence-flight-rank[\w.-]+-pid\d+-\d+-[a-z]+\.json")
_UNFIT = re.compile(r"[^A-Za-z0-9._-]")


def _there(folder: Path) -> Path:
    """Return the folder, or where it is missing the nearest above it that isn't.

    Raises:
        OSError: it can't be looked for: a file stands in the way, or its name is too long.
    """
    for path in (folder, *folder.parents):
        try:
            path.lstat()
        except FileNotFoundError:
            continue
        return path
    return folder


class DumpFiles:
    """The dumps of one process.

    Args:
        folder: where; made with the first dump if it is missing.
        rank: a part of their names.

    Raises:
        ConfigError: the folder can't be made, or no file can be written there.
    """

    def __init__(self, folder: Path, rank: str) -> None:
        self.folder = folder.absolute()  # the process may change its directory
        self._rank = _UNFIT.sub("_", rank) or "0"
        self._own: list[Path] = []
        self._count = 0
        try:
            # In what is there of it: a run that writes no dump leaves no folder behind.
            tempfile.TemporaryFile(dir=_there(self.folder)).close()
        except OSError as error:
            msg = f"no dump can be written to {folder} ({error.strerror}): name a folder that can be made and written"
            raise ConfigError(msg) from error

    def write(self, text: str, cause: str) -> Path:
        """Write a dump and return its path; older ones beyond what is kept are removed.

        Raises:
            OSError: it can't be written.
        """
        self._count += 1
        self.folder.mkdir(parents=True, exist_ok=True)
        name = f"sglang-fence-flight-rank{self._rank}-pid{os.getpid()}-{self._count}-{cause}.json"
        path = self.folder / name
        handle, unfinished = tempfile.mkstemp(prefix=".sglang-fence-flight-", dir=self.folder)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            Path(unfinished).replace(path)
        except BaseException:
            Path(unfinished).unlink(missing_ok=True)
            raise
        self._own.append(path)
        while len(self._own) > KEEP_OWN:
            self._own.pop(0).unlink(missing_ok=True)
        self._clear_others()
        return path

    def _clear_others(self) -> None:
        """Keep the newest in the folder. Other processes may do the same at the same time."""
        found: list[tuple[int, str]] = []
        with os.scandir(self.folder) as entries:
            for entry in entries:
                if _NAME.fullmatch(entry.name):
                    try:
                        found.append((entry.stat(follow_symlinks=False).st_mtime_ns, entry.name))
                    except FileNotFoundError:
                        continue
        for _, name in sorted(found)[:-KEEP_ALL]:
            (self.folder / name).unlink(missing_ok=True)
