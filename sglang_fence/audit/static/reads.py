"""Where a hook reads a shared buffer in one mode: in its own body, or in what it calls in its class, bases and module.

What an object of another class does is not followed: a shared tensor that is handed to it counts as read there.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sglang_fence.audit.static.calls import Step, reached
from sglang_fence.audit.static.classes import self_attribute
from sglang_fence.audit.static.paths import Path
from sglang_fence.audit.static.vocabulary import NOT_A_READ, SHARED_ATTRIBUTES, SHARED_READERS

if TYPE_CHECKING:
    from sglang_fence.audit.static.classes import ClassInfo
    from sglang_fence.contract import ForwardMode


@dataclass(frozen=True, slots=True)
class Read:
    """A read of a shared buffer."""

    buffer: str
    function: str
    file: str
    line: int

    @property
    def place(self) -> str:
        """As sentences give it."""
        return f"{self.buffer} in {self.function} ({self.file}:{self.line})"


def reads(cls: ClassInfo, hook: str, mode: ForwardMode) -> tuple[Read, ...]:
    """Return the reads that an object of ``cls`` does in ``hook``, in order of place; none where it has no hook."""
    start = cls.find(hook)
    if start is None:
        return ()
    own_names = shared_attributes(cls)
    handles: set[ast.AST] = set()
    found: set[Read] = set()
    for step, node in reached(cls, Step(*start), lambda step: Path(cls, mode, step).nodes()):
        if not isinstance(node, ast.Attribute):
            continue
        if node.attr in NOT_A_READ:
            handles.add(node.value)  # outer nodes come first
        if node not in handles and _is_read(node, own_names):
            found.add(Read(node.attr, step.function.name, step.owner.module.path.name, node.lineno))
    return tuple(sorted(found, key=lambda read: (read.file, read.line, read.buffer)))


def shared_attributes(cls: ClassInfo) -> frozenset[str]:
    """Return the attributes of ``self`` that hold a shared tensor under any name."""
    held = {
        name
        for owner in cls.mro
        for name, value in owner.held
        if isinstance(value, ast.Attribute) and value.attr in SHARED_ATTRIBUTES
    }
    return SHARED_ATTRIBUTES | held


def _is_read(node: ast.Attribute, own_names: frozenset[str]) -> bool:
    """Whether the contents of a shared buffer are taken, by itself or through a method of its pool."""
    if not isinstance(node.ctx, ast.Load):
        return False
    return node.attr in SHARED_ATTRIBUTES | SHARED_READERS or self_attribute(node) in own_names
