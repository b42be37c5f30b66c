"""All that was parsed, as one world of classes: which of them implement the contract, and which base they share."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from sglang_fence.audit.static.children import Children, named_as_backend
from sglang_fence.audit.static.classes import ClassInfo, Imported, ModuleInfo, linearised
from sglang_fence.audit.static.sources import Sources, Unreadable, parse
from sglang_fence.audit.static.target import installed_file
from sglang_fence.audit.static.vocabulary import CURRENT_NAMES, DECLARATION, OUT_GRAPH, ROOT_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sglang_fence.audit.static.target import Target

_SOUNDS_RIGHT = re.compile("Backend|Attention|Attn")
_LONGEST_CHAIN = 8
"""Modules that a name may be imported through."""


class World:
    """Resolves names.

    Args:
        target: its files are preferred over installed ones of the same name.
        sources: what was parsed of it.
    """

    def __init__(self, target: Target, sources: Sources) -> None:
        self.target = target
        self.sources = sources
        self._by_file_name: dict[str, list[Path]] = {}
        for path in target.files:
            self._by_file_name.setdefault(path.name, []).append(path)
        self._modules: dict[Path, ModuleInfo | None] = {
            path: ModuleInfo(path, tree, audited=True) for path, tree in sources.trees.items()
        }
        self._resolving: set[ClassInfo] = set()
        parsed = [module for module in self._modules.values() if module is not None]
        self.backends = tuple(cls for module in parsed for cls in module.classes.values() if self.is_backend(cls))
        """Classes of the target that implement the contract, its base too."""
        self.children = Children(frozenset(cls.name for cls in self.backends), self._is_outside)

    def root(self, cls: ClassInfo) -> ClassInfo | None:
        """Return the contract's base class above ``cls``, or itself; None where its source isn't found."""
        self._resolve_bases(cls)
        roots = [one for one in cls.mro if _defines_contract(one)]
        return roots[-1] if roots else None

    def is_backend(self, cls: ClassInfo) -> bool:
        """Whether ``cls`` implements the contract: it is, or descends from, the contract's base."""
        return self.root(cls) is not None or any(_is_backends_name(base) for base in cls.missing_bases)

    def contract_names(self, cls: ClassInfo) -> frozenset[str]:
        """Return the names that the contract of this very tree has; of 0.5.23 where its base isn't found."""
        root = self.root(cls)
        return CURRENT_NAMES if root is None else frozenset(root.methods) | root.attributes

    def named(self, module: ModuleInfo, expression: ast.expr) -> ClassInfo | None:
        """Return the class that a name or a dotted name stands for in ``module``."""
        if isinstance(expression, ast.Subscript):  # Generic[...]
            return self.named(module, expression.value)
        if isinstance(expression, ast.Name):
            return self._symbol(module, expression.id, _LONGEST_CHAIN)
        if isinstance(expression, ast.Attribute):
            dotted = ast.unparse(expression.value).split(".")
            imported = module.imports.get(dotted[0])
            if imported is None:
                return None
            parts = [imported.module, *([imported.symbol] if imported.symbol else []), *dotted[1:]]
            where = Imported(".".join(part for part in parts if part), imported.level, expression.attr)
            return self._imported(module, where, _LONGEST_CHAIN)
        return None

    def subclasses(self, cls: ClassInfo) -> Iterator[ClassInfo]:
        """Backends of the target that descend from ``cls``, itself left out."""
        return (one for one in self.backends if one is not cls and cls in one.mro)

    def _is_outside(self, module: str) -> bool:
        top = module.partition(".")[0]
        root = self.target.root
        return bool(top) and top not in root.parts and not (root / top).exists() and not (root / f"{top}.py").exists()

    def _symbol(self, module: ModuleInfo, name: str, chain: int) -> ClassInfo | None:
        if name in module.classes:
            return self._resolve_bases(module.classes[name])
        imported = module.imports.get(name)
        return None if imported is None or chain == 0 else self._imported(module, imported, chain)

    def _imported(self, module: ModuleInfo, imported: Imported, chain: int) -> ClassInfo | None:
        if imported.symbol is None:
            return None
        for path in self._files(module, imported):
            other = self._module(path)
            found = None if other is None or other is module else self._symbol(other, imported.symbol, chain - 1)
            if found is not None:
                return found
        return None

    def _files(self, module: ModuleInfo, imported: Imported) -> Iterator[Path]:
        """Where a module may lie: by the importing file's own place, then elsewhere in the target, then installed."""
        parts = imported.module.split(".") if imported.module else []
        above = module.path.parents
        places = above[imported.level - 1 : imported.level] if imported.level else above
        for place in places:
            yield from (path for path in _as_files(place, parts) if path.is_file())
        if imported.level or not parts:
            return
        # A tree that was copied out of its package: the more of the dotted name a path ends with, the better.
        for kept in range(len(parts) - 1, 0, -1):
            ending = parts[-kept:]
            for path in self._by_file_name.get(f"{ending[-1]}.py", ()):
                if path.with_suffix("").parts[-kept:] == tuple(ending):
                    yield path
        # Most bases, such as a framework's modules, can't bring hooks: only what sounds like a backend is looked up.
        if _SOUNDS_RIGHT.search(imported.symbol or ""):
            installed = installed_file(imported.module)
            if installed is not None:
                yield installed

    def _module(self, path: Path) -> ModuleInfo | None:
        if path not in self._modules:
            parsed = parse(path)
            readable = None if isinstance(parsed, Unreadable) else ModuleInfo(path, parsed, audited=False)
            self._modules[path] = readable
        return self._modules[path]

    def _resolve_bases(self, cls: ClassInfo) -> ClassInfo:
        if cls.mro or cls in self._resolving:
            return cls
        self._resolving.add(cls)
        found: list[ClassInfo] = []
        missing: list[str] = []
        for expression in cls.node.bases:
            base = self.named(cls.module, expression)
            if base is None:
                missing.append(ast.unparse(expression))
            else:
                found.append(base)
                missing.extend(base.missing_bases)
        cls.mro = linearised(cls, found)
        cls.missing_bases = tuple(dict.fromkeys(missing))
        self._resolving.discard(cls)
        return cls


def _defines_contract(cls: ClassInfo) -> bool:
    """Whether a class brings the hooks itself under the base's name, or the whole contract under any other."""
    if cls.name == ROOT_NAME:
        return DECLARATION in cls.methods or OUT_GRAPH in cls.methods
    alone = len(cls.mro) == 1 and not any(_is_backends_name(base) for base in cls.missing_bases)
    return alone and DECLARATION in cls.methods and OUT_GRAPH in cls.methods


def _is_backends_name(base: str) -> bool:
    return named_as_backend(base.rpartition(".")[2])


def _as_files(folder: Path, parts: list[str]) -> tuple[Path, ...]:
    place = folder.joinpath(*parts)
    return (place / "__init__.py", place.with_name(f"{place.name}.py")) if parts else (folder / "__init__.py",)
