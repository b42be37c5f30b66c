"""Classes and modules as the source names them, resolved across files by their imports.

Nothing is imported. The order in which a class is searched (its MRO) is approximated: bases from left to right, depth
first, a class that several bases share at its last place. That is Python's own order for all but contrived diamonds;
what metaclasses, decorators or assignments after the class statement do isn't seen.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Imported:
    """What a name stands for: ``symbol`` of ``module``, or the module itself."""

    module: str
    level: int
    """Leading dots of a relative import."""
    symbol: str | None


@dataclass(eq=False)
class ModuleInfo:
    """One parsed file."""

    path: Path
    tree: ast.Module
    audited: bool
    """Whether it belongs to the target, rather than being read for a base's sake."""

    @cached_property
    def imports(self) -> dict[str, Imported]:
        """Names by what they were imported from, at the module's level."""
        found: dict[str, Imported] = {}
        for node in _level(self.tree.body):
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    found[alias.asname or alias.name] = Imported(node.module or "", node.level, alias.name)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    whole = alias.name if alias.asname else alias.name.split(".")[0]
                    found[alias.asname or whole] = Imported(whole, 0, None)
        return found

    @cached_property
    def functions(self) -> dict[str, Function]:
        """Functions at the module's level."""
        return {node.name: node for node in _level(self.tree.body) if isinstance(node, Function)}

    @cached_property
    def classes(self) -> dict[str, ClassInfo]:
        """Classes at the module's level."""
        return {node.name: ClassInfo(self, node) for node in _level(self.tree.body) if isinstance(node, ast.ClassDef)}


@dataclass(eq=False)
class ClassInfo:
    """One class statement."""

    module: ModuleInfo
    node: ast.ClassDef
    mro: tuple[ClassInfo, ...] = ()
    """Itself first; without bases whose source isn't found."""
    missing_bases: tuple[str, ...] = field(default=())
    """Names of bases, anywhere above, whose source isn't found."""

    @property
    def name(self) -> str:
        """Its name."""
        return self.node.name

    @property
    def place(self) -> str:
        """File and line, as sentences give them."""
        return f"{self.module.path.name}:{self.node.lineno}"

    @cached_property
    def methods(self) -> dict[str, Function]:
        """Methods of its own body; of a property, the getter."""
        found: dict[str, Function] = {}
        for node in _level(self.node.body):
            if isinstance(node, Function) and not any(_is_setter(one) for one in node.decorator_list):
                found[node.name] = node
        return found

    @cached_property
    def held(self) -> tuple[tuple[str, ast.expr], ...]:
        """What its own methods assign to attributes of ``self``: each attribute's name, and the value."""
        return tuple(
            (name, node.value)
            for method in self.methods.values()
            for node in ast.walk(method)
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if (name := self_attribute(target)) is not None
        )

    @cached_property
    def attributes(self) -> frozenset[str]:
        """Attributes that its own body gives a value, on the class or on ``self``."""
        on_class = {
            target.id
            for node in _level(self.node.body)
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if isinstance(target, ast.Name)
        }
        return frozenset(on_class | {name for name, _ in self.held})

    def find(self, name: str, *, after: ClassInfo | None = None) -> tuple[ClassInfo, Function] | None:
        """Return the method that an object of this class has under ``name``, with the class that defines it.

        Args:
            name: the method's.
            after: search behind this class, as its ``super()`` does.
        """
        order = self.mro if after is None or after not in self.mro else self.mro[self.mro.index(after) + 1 :]
        for owner in order:
            if name in owner.methods:
                return owner, owner.methods[name]
        return None


def self_attribute(node: ast.AST) -> str | None:
    """Return ``x`` of ``self.x``; None for anything else."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return node.attr
    return None


def linearised(own: ClassInfo, bases: Iterable[ClassInfo]) -> tuple[ClassInfo, ...]:
    """Return the approximated MRO: see above."""
    order = [own, *(one for base in bases for one in base.mro)]
    return tuple(one for place, one in enumerate(order) if one not in order[place + 1 :])


def _level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a body, and those inside its ``if``, ``try`` and ``with``."""
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With):
            for inner in (node.body, *([] if isinstance(node, ast.With) else [node.orelse])):
                yield from _level(inner)
            if isinstance(node, ast.Try):
                for handler in node.handlers:
                    yield from _level(handler.body)


def _is_setter(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Attribute) and decorator.attr in {"setter", "deleter"}
