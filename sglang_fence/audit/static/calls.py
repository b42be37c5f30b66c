"""Whom a method calls, as far as the class, its bases and its module go."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from sglang_fence.audit.static.classes import self_attribute

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from sglang_fence.audit.static.classes import ClassInfo, Function


class Step(NamedTuple):
    """A function on the way, and where its ``super()`` starts from."""

    owner: ClassInfo
    """The class that defines it; of a module's function, the class whose method called it."""
    function: Function


def reached(
    cls: ClassInfo,
    start: Step,
    nodes_of: Callable[[Function], Iterable[ast.AST]],
) -> Iterator[tuple[Step, ast.AST]]:
    """Yield each node of ``start`` and of all that it calls on an object of ``cls``, each function once.

    Args:
        cls: the object's class: ``self.method()`` is looked up from here.
        start: where to begin.
        nodes_of: which nodes of a function count.
    """
    seen: set[ast.AST] = set()
    pending = [start]
    while pending:
        step = pending.pop()
        if step.function in seen:
            continue
        seen.add(step.function)
        for node in nodes_of(step.function):
            yield step, node
            following = called(cls, step, node)
            if following is not None:
                pending.append(following)


def called(cls: ClassInfo, step: Step, node: ast.AST) -> Step | None:
    """Return the function that ``node`` calls, or reads as a property; None where it is none of these."""
    name = self_attribute(node)
    if name is not None:
        # A bound method that is handed on counts as called, as a property does.
        return _as_step(cls.find(name))
    if not isinstance(node, ast.Call):
        return None
    function = node.func
    if isinstance(function, ast.Name):
        local = step.owner.module.functions.get(function.id)
        return None if local is None else Step(step.owner, local)
    if not isinstance(function, ast.Attribute):
        return None
    if is_super(function.value):
        return _as_step(cls.find(function.attr, after=step.owner))
    if isinstance(function.value, ast.Name):
        for base in cls.mro:
            if base.name == function.value.id and function.attr in base.methods:
                return Step(base, base.methods[function.attr])
    return None


def is_super(node: ast.expr) -> bool:
    """Whether a node is ``super()``."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def _as_step(found: tuple[ClassInfo, Function] | None) -> Step | None:
    return None if found is None else Step(*found)
