"""Which files of a target bear on the contract, and their syntax trees.

A tree such as SGLang's has two thousand files and a hundred backends. Parsing all takes a minute, so files are first
scanned as text: those that define a hook are parsed, and those with a class that descends, by the names written in its
``class`` line, from a class in one of them.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sglang_fence.audit.static.vocabulary import RENAMED, ROOT_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sglang_fence.audit.static.target import Target

_HOOK = re.compile(rb"\bdef\s+(?:shared_read_ends|init_forward_metadata\w*)\b")
_CLASS = re.compile(rb"^[ \t]*class[ \t]+(\w+)[ \t]*(?:\[[^\]]*\])?\(([^)]*)\)", re.MULTILINE)
_ALIAS = re.compile(rb"\b([A-Z]\w*) as (\w+)")
_CALLED = re.compile(rb"\.(" + b"|".join(name.encode() for one in RENAMED for name in one.names) + rb")\b(?!\s*=[^=])")


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A file that ought to have been parsed and could not be."""

    path: Path
    line: int
    problem: str


@dataclass(slots=True)
class Sources:
    """The files that bear on the contract."""

    trees: dict[Path, ast.Module] = field(default_factory=dict)
    unreadable: list[Unreadable] = field(default_factory=list)
    used: dict[str, set[Path]] = field(default_factory=lambda: defaultdict(set))
    """Where the hooks that were renamed are asked of an object, by name."""


def parse(path: Path) -> ast.Module | Unreadable:
    """Parse one file, or say why it can't be."""
    try:
        return ast.parse(path.read_bytes(), filename=str(path))
    except SyntaxError as error:
        return Unreadable(path, error.lineno or 1, error.msg)
    except (OSError, ValueError, RecursionError) as error:
        return Unreadable(path, 1, str(error) or type(error).__name__)


def read_sources(target: Target) -> Sources:
    """Choose files and parse them."""
    found = Sources()
    for path in _relevant(target, found):
        parsed = parse(path)
        if isinstance(parsed, Unreadable):
            found.unreadable.append(parsed)
        else:
            found.trees[path] = parsed
    return found


def _relevant(target: Target, found: Sources) -> list[Path]:
    """Return the files to parse, in order; note uses of renamed hooks, and files that can't even be read."""
    chosen: set[Path] = set()
    heirs: dict[bytes, list[tuple[bytes, Path | None]]] = defaultdict(list)  # no path: the same class, renamed
    pending = [ROOT_NAME.encode()]
    for path in target.files:
        try:
            text = path.read_bytes()
        except OSError as error:
            found.unreadable.append(Unreadable(path, 1, error.strerror or "can't be read"))
            continue
        for called in _CALLED.finditer(text):
            found.used[called[1].decode()].add(path)
        hooked = _HOOK.search(text) is not None
        if hooked:
            chosen.add(path)
        for original, alias in _ALIAS.findall(text):
            heirs[original].append((alias, None))
        for name, bases in _class_lines(text):
            if hooked:
                pending.append(name)
            for base in bases:
                heirs[base].append((name, path))
    return sorted(chosen | _descendants(pending, heirs))


def _descendants(pending: list[bytes], heirs: dict[bytes, list[tuple[bytes, Path | None]]]) -> set[Path]:
    """Return the files of all classes below those named in ``pending``, by the names of their bases."""
    chosen: set[Path] = set()
    seen: set[bytes] = set()
    while pending:
        base = pending.pop()
        if base not in seen:
            seen.add(base)
            chosen.update(path for _, path in heirs[base] if path is not None)
            pending.extend(name for name, _ in heirs[base])
    return chosen


def _class_lines(text: bytes) -> Iterator[tuple[bytes, list[bytes]]]:
    """Each class with the last part of each base's name."""
    for name, listed in _CLASS.findall(text):
        yield name, [base.partition(b"[")[0].rpartition(b".")[2].strip() for base in listed.split(b",")]
