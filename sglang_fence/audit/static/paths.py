"""What of a function runs in one mode: branches that the mode rules out are left out, all others are kept."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sglang_fence.audit.static.calls import Step, callee
from sglang_fence.audit.static.modes import truth

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sglang_fence.audit.static.classes import ClassInfo
    from sglang_fence.contract import ForwardMode

_DEEPEST = 4
"""How many predicates may ask one another."""


@dataclass(frozen=True, slots=True)
class Path:
    """The live part of one function."""

    cls: ClassInfo
    """Of the object that runs it; predicates that it defines are looked into."""
    mode: ForwardMode
    step: Step
    """The function, and the class that defines it."""
    depth: int = 0
    """Of predicates that are being looked into."""

    def nodes(self) -> Iterator[ast.AST]:
        """Each live node, outer ones first; functions defined inside count as called."""
        for statement in self.statements():
            yield from self._inside(statement)

    def returned(self) -> list[ast.expr]:
        """Each live expression that is returned, conditional ones taken apart."""
        return [
            one
            for statement in self.statements()
            if isinstance(statement, ast.Return) and statement.value is not None
            for one in self._alternatives(statement.value)
        ]

    def statements(self) -> list[ast.stmt]:
        """Live statements, flat: of compound ones the header, then what is in them."""
        found: list[ast.stmt] = []
        self._collect(self.step.function.body, found)
        return found

    def truth(self, condition: ast.expr) -> bool | None:
        """Return what a condition is worth here."""
        return truth(condition, self.mode, self._asked)

    def _collect(self, body: list[ast.stmt], found: list[ast.stmt]) -> bool:
        """Add live statements, and return whether none behind ``body`` is live."""
        for statement in body:
            found.append(statement)
            if isinstance(statement, ast.Return | ast.Raise | ast.Continue | ast.Break):
                return True
            if isinstance(statement, ast.If):
                worth = self.truth(statement.test)
                left = worth is not False and self._collect(statement.body, found)
                other_left = worth is not True and self._collect(statement.orelse, found)
                if (left or worth is False) and (other_left or worth is True):
                    return True
            elif isinstance(statement, ast.With | ast.AsyncWith):
                if self._collect(statement.body, found):
                    return True
            elif isinstance(statement, ast.For | ast.AsyncFor | ast.While | ast.Try | ast.Match):
                for inner in _bodies(statement):
                    self._collect(inner, found)
        return False

    def _inside(self, node: ast.AST) -> Iterator[ast.AST]:
        yield node
        if isinstance(node, ast.IfExp):
            yield from self._inside(node.test)
            for one in self._alternatives(node):
                yield from self._inside(one)
            return
        for child in ast.iter_child_nodes(node):
            # Statements inside compound ones come by themselves; a nested function's body doesn't.
            nested = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            if nested or not isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
                yield from self._inside(child)

    def _alternatives(self, expression: ast.expr) -> list[ast.expr]:
        if not isinstance(expression, ast.IfExp):
            return [expression]
        worth = self.truth(expression.test)
        return [
            *(self._alternatives(expression.body) if worth is not False else []),
            *(self._alternatives(expression.orelse) if worth is not True else []),
        ]

    def _asked(self, call: ast.Call) -> bool | None:
        """Return what a predicate of the class is worth, if all that it can return is worth the same."""
        found = callee(self.cls, self.step, call)
        if found is None or self.depth == _DEEPEST:
            return None
        deeper = Path(self.cls, self.mode, found, self.depth + 1)
        worths = {deeper.truth(one) for one in deeper.returned()}
        return worths.pop() if len(worths) == 1 else None


def _bodies(statement: ast.For | ast.AsyncFor | ast.While | ast.Try | ast.Match) -> list[list[ast.stmt]]:
    if isinstance(statement, ast.Match):
        return [case.body for case in statement.cases]
    if isinstance(statement, ast.Try):
        handlers = [handler.body for handler in statement.handlers]
        return [statement.body, *handlers, statement.orelse, statement.finalbody]
    return [statement.body, statement.orelse]
