"""Whom a method calls, as far as the class, its bases and its module go."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

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
    nodes_of: Callable[[Step], Iterable[ast.AST]],
) -> Iterator[tuple[Step, ast.AST]]:
    """Yield each node of ``start`` and of all that it calls on an object of ``cls``, each function once.

    Args:
        cls: the object's class: ``self.method()`` is looked up from here.
        start: where to begin.
        nodes_of: which nodes of a function on the way count.
    """
    seen: set[ast.AST] = set()
    pending = [start]
    while pending:
        step = pending.pop()
        if step.function in seen:
            continue
        seen.add(step.function)
        for node in nodes_of(step):
            yield step, node
            following = called(cls, step, node)
            if following is not None:
                pending.append(following)


def called(cls: ClassInfo, step: Step, node: ast.AST) -> Step | None:
    """Return the function that ``node`` calls, or reads as a property; None where it is none of these."""
    found: tuple[ClassInfo, Function] | None = None
    match node:
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            found = cls.find(name)  # a bound method that is handed on counts as called, as a property does
        case ast.Call(func=ast.Name(id=name)) if name in step.owner.module.functions:
            found = (step.owner, step.owner.module.functions[name])
        case ast.Call(func=ast.Attribute(value=of, attr=name)) if is_super(of):
            found = cls.find(name, after=step.owner)
        case ast.Call(func=ast.Attribute(value=ast.Name(id=of), attr=name)):
            named = (base for base in cls.mro if base.name == of and name in base.methods)
            found = next(((base, base.methods[name]) for base in named), None)
        case _:
            pass
    return None if found is None else Step(*found)


def callee(cls: ClassInfo, step: Step, call: ast.Call) -> Step | None:
    """Return the function that ``call`` calls: a method of ``self`` is named by the call's own ``func``."""
    return called(cls, step, call) or called(cls, step, call.func)


def is_super(node: ast.expr) -> bool:
    """Whether a node is ``super()``."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"
