"""``wrapper-inherits``: a class holds child backends and answers a hook without asking them (R1)."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from sglang_fence.audit.static.answers import answers
from sglang_fence.audit.static.calls import Step, reached
from sglang_fence.audit.static.classes import self_attribute
from sglang_fence.audit.static.finding import Confidence, Finding
from sglang_fence.audit.static.modes import MODES
from sglang_fence.audit.static.vocabulary import DECLARATION, HOOKS
from sglang_fence.contract import SharedReadEnds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sglang_fence.audit.static.children import Child
    from sglang_fence.audit.static.classes import ClassInfo, Function
    from sglang_fence.audit.static.vocabulary import Hook
    from sglang_fence.audit.static.world import World


class WrapperInherits:
    """Reported at the class that brings the children, with the subclasses that inherit the fault."""

    name = "wrapper-inherits"

    def check(self, world: World, cls: ClassInfo) -> Iterator[Finding]:
        """See the module."""
        if not world.children.new(cls):
            return
        held = world.children.of(cls)
        for name, hook in HOOKS.items():
            if name == DECLARATION or _is_overridden_by_a_leaf(world, name):
                yield from self._unasked(world, cls, held, name, hook)

    def _unasked(
        self,
        world: World,
        cls: ClassInfo,
        held: dict[str, Child],
        name: str,
        hook: Hook,
    ) -> Iterator[Finding]:
        if name not in world.contract_names(cls) or _passes_on(world, cls, held, name, hook):
            return
        found = cls.find(name)
        owner = None if found is None else found[0]
        own = owner is cls
        if own and name == DECLARATION and _is_coarse(cls):
            return
        whose = f"the contract's {name}" if owner is None else f"{name} from {owner.name} ({_line(owner, name)})"
        does = f"answers {name} itself" if own else f"inherits {whose}"
        attributes = ", ".join(f"self.{one}" for one in held)
        also = tuple(
            one.name for one in world.subclasses(cls) if not _passes_on(world, one, world.children.of(one), name, hook)
        )
        yield Finding(
            rule=self.name,
            severity=hook.severity,
            confidence=_confidence(held, owner),
            path=cls.module.path,
            line=cls.methods[name].lineno if own else cls.node.lineno,
            class_name=cls.name,
            sentence=f"{cls.name} holds child backends ({attributes}) and {does} without asking them, "
            f"so {hook.consequence}.",
            mend=f"Override {name} in {cls.name} and pass it on to the children that read."
            if not own
            else f"Ask the children that read in {cls.name}.{name}.",
            also=also,
        )


def asked_children(cls: ClassInfo, held: dict[str, Child], found: tuple[ClassInfo, Function]) -> frozenset[str]:
    """Return the attributes of ``held`` that a method of ``cls`` uses, by itself or in what it calls."""
    nodes = reached(cls, Step(*found), lambda step: ast.walk(step.function))
    return frozenset(name for _, node in nodes if (name := self_attribute(node)) in held)


def _passes_on(world: World, cls: ClassInfo, held: dict[str, Child], name: str, hook: Hook) -> bool:
    found = cls.find(name)
    if any(name in one.attributes for one in cls.mro if one is not world.root(cls)):
        return True  # set in __init__, from the children
    if found is None:
        return False
    if hook.directly and found[0] is world.root(cls):
        return False
    if _is_loud(found[1]):
        return True
    return bool(asked_children(cls, held, found))


def _is_overridden_by_a_leaf(world: World, name: str) -> bool:
    """Whether there is anything to pass the hook on to."""
    return any(
        name in cls.methods and cls is not world.root(cls) and not world.children.of(cls) for cls in world.backends
    )


def _is_coarse(cls: ClassInfo) -> bool:
    """Whether a class declares UNKNOWN for every mode: sound, whatever the children say."""
    return all(set(answers(cls, mode)) <= {SharedReadEnds.UNKNOWN} for mode in MODES)


def _is_loud(function: Function) -> bool:
    """Whether a method's body only raises, or is abstract: then a wrapper that forgets it fails at once."""
    if any(ast.unparse(one).endswith("abstractmethod") for one in function.decorator_list):
        return True
    body = [one for one in function.body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]
    return len(body) == 1 and isinstance(body[0], ast.Raise)


def _confidence(held: dict[str, Child], owner: ClassInfo | None) -> Confidence:
    if owner is None:
        return Confidence.LOW
    return Confidence.MEDIUM if all(child.by_use for child in held.values()) else Confidence.HIGH


def _line(owner: ClassInfo, name: str) -> str:
    return f"{owner.module.path.name}:{owner.methods[name].lineno}"
