"""The static check: are a version's functions there, with the signatures that are known? It reads files, runs nothing.

Used where SGLang can't be imported (a released wheel, unpacked), and where importing it only to look would be a waste.
"""

from __future__ import annotations

import ast
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sglang_fence.sglang_plugin.targets import Target

PRESENT = "installed"
MISSING = "missing"
SIGNATURE = "signature"


def package_folder(name: str) -> Path | None:
    """Return the folder of an installed top-level package without importing it; None where it isn't installed."""
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def check_sources(folder: Path, targets: Iterable[Target]) -> dict[str, str]:
    """Return the state of each target, by its path: a value of the catalogue's label ``state``.

    Args:
        folder: SGLang's package folder: the one that holds ``srt``.
        targets: what to look for.
    """
    trees: dict[str, ast.Module | None] = {}
    states: dict[str, str] = {}
    for target in targets:
        if target.module not in trees:
            trees[target.module] = _parse(folder, target.module)
        parameters = _parameters(trees[target.module], target.owner, target.name)
        if parameters is None:
            states[target.path] = MISSING
        else:
            states[target.path] = PRESENT if parameters in target.signatures else SIGNATURE
    return states


def _parse(folder: Path, module: str) -> ast.Module | None:
    path = folder.joinpath(*module.split(".")[1:])
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if candidate.is_file():
            return ast.parse(candidate.read_text(encoding="utf-8"))
    return None


def _parameters(tree: ast.Module | None, owner: str | None, name: str) -> tuple[str, ...] | None:
    """Return the names of a function's parameters in the order of ``inspect.signature``; None where it isn't there."""
    body: list[ast.stmt] = tree.body if tree is not None else []
    if owner is not None:
        classes = [node for node in body if isinstance(node, ast.ClassDef) and node.name == owner]
        body = classes[0].body if classes else []
    for node in body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            arguments = node.args
            positional = [*arguments.posonlyargs, *arguments.args]
            starred = [arguments.vararg] if arguments.vararg is not None else []
            double_starred = [arguments.kwarg] if arguments.kwarg is not None else []
            return tuple(item.arg for item in (*positional, *starred, *arguments.kwonlyargs, *double_starred))
    return None
