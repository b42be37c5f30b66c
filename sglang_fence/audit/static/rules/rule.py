"""What a rule is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sglang_fence.audit.static.classes import ClassInfo
    from sglang_fence.audit.static.finding import Finding
    from sglang_fence.audit.static.world import World


class Rule(Protocol):
    """Looks at one class of the target at a time."""

    @property
    def name(self) -> str:
        """Its id, as findings and ``ignore`` comments give it."""

    def check(self, world: World, cls: ClassInfo) -> Iterable[Finding]:
        """Yield what is wrong with ``cls``, a class that implements the contract."""
