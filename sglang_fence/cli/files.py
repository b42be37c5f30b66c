"""Files that a command writes: checked before the work, written after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path


def check_writable(*paths: Path | None) -> None:
    """Refuse paths that can't be written, before any work is done for them. Leaves nothing behind.

    Raises:
        ConfigError: one can't be opened for writing.
    """
    for path in paths:
        if path is None:
            continue
        new = not path.exists()
        try:
            path.open("a", encoding="utf-8").close()
            if new:
                path.unlink()
        except OSError as error:
            raise _refused(path, error) from error


def check_apart(files: Mapping[str, Path | None], inputs: Iterable[Path] = ()) -> None:
    """Refuse options that name one file, or a file that is read: writing one would destroy the other.

    Args:
        files: what is written, by option.
        inputs: what is read. Whatever lies in a folder that is read is read.

    Raises:
        ConfigError: naming the options, or the file.
    """
    seen: list[tuple[str, Path]] = []
    for option, path in files.items():
        if path is None:
            continue
        for other, earlier in seen:
            if _same(path, earlier):
                msg = f"{other} and {option} both name {path}: give each a file of its own"
                raise ConfigError(msg)
        seen.append((option, path))
        for source in inputs:
            inside = source.is_dir() and path.exists() and source.resolve() in path.resolve().parents
            if inside or _same(path, source):
                msg = f"{option} {path}: it is read, and would be overwritten; name another file"
                raise ConfigError(msg)


def _same(one: Path, other: Path) -> bool:
    if one.resolve() == other.resolve():
        return True
    return one.exists() and other.exists() and one.samefile(other)


def write(path: Path, content: str) -> None:
    """Write a file.

    Raises:
        ConfigError: it can't be written, or not whole.
    """
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise _refused(path, error) from error


def folder_for(path: Path) -> None:
    """Make a folder, with those above it, unless it is there.

    Raises:
        ConfigError: it can't be made, or is a file.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"{path} can't be a folder ({error.strerror}): name one that is there, or can be made"
        raise ConfigError(msg) from error


def _refused(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"{path} can't be written ({error.strerror}): name a file in a folder that exists and has room")
