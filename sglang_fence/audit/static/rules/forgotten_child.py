"""``forgotten-child``: a wrapper's declaration asks some of its children and never another (R1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.audit.static.finding import Confidence, Finding, Severity
from sglang_fence.audit.static.rules.wrapper_inherits import asked_children
from sglang_fence.audit.static.vocabulary import DECLARATION

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sglang_fence.audit.static.classes import ClassInfo
    from sglang_fence.audit.static.world import World


class ForgottenChild:
    """Two attributes that were made from the same thing are one child, such as a list and its elements."""

    name = "forgotten-child"

    def check(self, world: World, cls: ClassInfo) -> Iterator[Finding]:
        """See the module."""
        found = cls.find(DECLARATION)
        if found is None or not (DECLARATION in cls.methods or world.children.new(cls)):
            return
        held = world.children.of(cls)
        asked = asked_children(cls, held, found)
        covered = frozenset[str]().union(*(held[one].sources for one in asked))
        forgotten = [name for name, child in held.items() if not child.sources <= covered]
        if not asked or not forgotten:
            return
        owner, method = found
        names = ", ".join(f"self.{one}" for one in forgotten)
        yield Finding(
            rule=self.name,
            severity=Severity.ERROR,
            confidence=Confidence.MEDIUM,
            path=cls.module.path,
            line=method.lineno if owner is cls else cls.node.lineno,
            class_name=cls.name,
            sentence=f"{cls.name} declares its read end from {', '.join(f'self.{one}' for one in sorted(asked))} and "
            f"never from {names}, so a read that goes on longer there is published too early.",
            mend=f"Return the latest of all children that read in the mode, {names} among them.",
        )
