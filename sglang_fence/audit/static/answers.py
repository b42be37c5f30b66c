"""What a class declares for a mode, read from the source of ``shared_read_ends``."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from sglang_fence.audit.static.calls import Step, callee
from sglang_fence.audit.static.paths import Path
from sglang_fence.audit.static.vocabulary import DECLARATION
from sglang_fence.contract import ForwardMode, SharedReadEnds

if TYPE_CHECKING:
    from sglang_fence.audit.static.classes import ClassInfo

_DEEPEST = 8


def answers(cls: ClassInfo, mode: ForwardMode) -> frozenset[SharedReadEnds | None]:
    """Return all that an object of ``cls`` may declare for ``mode``; None stands for what the source doesn't show.

    Empty where no ``shared_read_ends`` is found.
    """
    found = cls.find(DECLARATION)
    return frozenset() if found is None else frozenset(_returned(cls, Step(*found), mode, 0))


def _returned(cls: ClassInfo, step: Step, mode: ForwardMode, depth: int) -> set[SharedReadEnds | None]:
    found: set[SharedReadEnds | None] = set()
    for expression in Path(cls, mode, step).returned():
        named = _named(expression)
        following = callee(cls, step, expression) if isinstance(expression, ast.Call) else None
        if named is not None:
            found.add(named)
        elif following is not None and depth < _DEEPEST:
            found |= _returned(cls, following, mode, depth + 1)
        else:
            found.add(None)
    return found


def _named(expression: ast.expr) -> SharedReadEnds | None:
    """Return the member that ``SharedReadEnds.X`` names."""
    if not isinstance(expression, ast.Attribute):
        return None
    if ast.unparse(expression.value).split(".")[-1] != SharedReadEnds.__name__:
        return None
    return SharedReadEnds.__members__.get(expression.attr)
