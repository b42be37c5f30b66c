"""What to audit: a file, a source tree, or an installed package, found without importing it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sglang_fence.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec


@dataclass(frozen=True, slots=True)
class Target:
    """A set of Python files."""

    name: str
    """As the user gave it."""
    root: Path
    """The folder to which shown paths are relative."""
    files: tuple[Path, ...]


def find_target(name: str) -> Target:
    """Find the Python files of ``name``: a path where there is one, else an installed package.

    Hidden folders and compiled files are left out.

    Raises:
        ConfigError: there is no such path and no such package, or it holds no Python file.
    """
    path = Path(name)
    if path.is_file():
        return _of_file(name, path.resolve())
    places = (path.resolve(),) if path.is_dir() else _package_folders(name)
    if len(places) == 1 and places[0].is_file():
        return _of_file(name, places[0])
    files = tuple(sorted(file for place in places for file in place.rglob("*.py") if _is_source(file, place)))
    if not files:
        msg = f"{name} holds no Python file: name the folder of a source tree, or an installed package"
        raise ConfigError(msg)
    return Target(name, places[0], files)


def find_spec(name: str, folders: Sequence[str] | None = None) -> ModuleSpec | None:
    """Find an installed module's spec, and import nothing: not the module, nor the packages above it.

    Args:
        name: dotted; its own last part is looked up in ``folders``.
        folders: where the package above lies; None: where top-level modules lie.
    """
    for finder in sys.meta_path:
        spec = finder.find_spec(name, folders)
        if spec is not None:
            return spec
    return None


def installed_file(module: str) -> Path | None:
    """Return the source file of an installed module, given by its dotted name; None where there is none."""
    spec = _spec_below(module)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    return Path(spec.origin)


def _spec_below(module: str) -> ModuleSpec | None:
    """Go down from the top-level package, a folder a part."""
    parts = module.split(".")
    spec = find_spec(parts[0])
    for number in range(2, len(parts) + 1):
        if spec is None or spec.submodule_search_locations is None:
            return None
        spec = find_spec(".".join(parts[:number]), list(spec.submodule_search_locations))
    return spec


def _package_folders(name: str) -> tuple[Path, ...]:
    spec = _spec_below(name) if all(part.isidentifier() for part in name.split(".")) else None
    if spec is None:
        msg = f"{name} is neither a path nor an installed package: name one of them"
        raise ConfigError(msg)
    if spec.submodule_search_locations is not None:
        return tuple(Path(place).resolve() for place in spec.submodule_search_locations)
    if spec.origin is not None and spec.origin.endswith(".py"):
        return (Path(spec.origin),)
    msg = f"{name} is installed without Python source: name a package that has some, or a path"
    raise ConfigError(msg)


def _of_file(name: str, path: Path) -> Target:
    if path.suffix != ".py":
        msg = f"{name} is no Python file: name a .py file, a folder, or an installed package"
        raise ConfigError(msg)
    return Target(name, path.parent, (path,))


def _is_source(file: Path, root: Path) -> bool:
    return file.is_file() and not any(part.startswith(".") for part in file.relative_to(root).parts)
