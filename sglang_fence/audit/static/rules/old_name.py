"""``old-name``: a class overrides a hook under a name that the contract of its release doesn't have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.audit.static.finding import Confidence, Finding, Severity
from sglang_fence.audit.static.vocabulary import RENAMED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sglang_fence.audit.static.classes import ClassInfo
    from sglang_fence.audit.static.vocabulary import Renamed
    from sglang_fence.audit.static.world import World


class OldName:
    """What counts as old is decided by the base class that the tree itself brings, so any release can be audited."""

    name = "old-name"

    def check(self, world: World, cls: ClassInfo) -> Iterator[Finding]:
        """See the module."""
        if cls is world.root(cls):
            return
        names = world.contract_names(cls)
        for renamed in RENAMED:
            for name in renamed.names:
                if name in cls.methods and name not in names:
                    yield self._found(world, cls, name, renamed, names)

    def _found(self, world: World, cls: ClassInfo, name: str, renamed: Renamed, names: frozenset[str]) -> Finding:
        root = world.root(cls)
        contract = "the contract of SGLang 0.5.23" if root is None else f"{root.name} ({root.place})"
        now = [one for one in renamed.names if one in names]
        # Its own tree may still ask for it, from a class that knows this one.
        used = sorted(path.name for path in world.sources.used.get(name, ()))
        callers = f"only {', '.join(used)} asks for it" if used else "nothing in the tree asks for it"
        severity = Severity.WARNING if used else Severity.ERROR
        return Finding(
            rule=self.name,
            severity=severity,
            confidence=Confidence.LOW if root is None else Confidence.MEDIUM if used else Confidence.HIGH,
            path=cls.module.path,
            line=cls.methods[name].lineno,
            class_name=cls.name,
            sentence=f"{cls.name} overrides {name}, which {contract} does not have, so runners never call it; "
            f"{callers}. ({renamed.history}.)",
            mend=f"Move it to {now[0]}." if now else "Remove it, or keep it for the release that calls it.",
        )
