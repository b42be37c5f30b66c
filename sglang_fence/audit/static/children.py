"""Which child backends a class holds.

Three things make an attribute of ``self`` a child: ``__init__`` gives it a parameter that is annotated as a backend (or
a list of them), it is given a backend that is made on the spot, or a hook of the contract is called on it.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sglang_fence.audit.static.calls import is_super
from sglang_fence.audit.static.classes import self_attribute
from sglang_fence.audit.static.vocabulary import DECLARATION, EAGER, IN_GRAPH, OUT_GRAPH, ROOT_NAME, SNAPSHOTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sglang_fence.audit.static.classes import ClassInfo, Function

_ASKED = frozenset({DECLARATION, EAGER, OUT_GRAPH, *IN_GRAPH, *SNAPSHOTS})


@dataclass(frozen=True, slots=True)
class Child:
    """An attribute that holds one child backend or several."""

    attribute: str
    sources: frozenset[str]
    """What it was made from, as the outermost ``__init__`` names it: attributes with the same are the same child."""
    by_use: bool
    """Known by a hook that is called on it alone."""


class Children:
    """Children of classes, each worked out once.

    Args:
        backend_names: names of the target's classes that implement the contract.
        is_outside: whether a module, given by its dotted name, lies outside the target.
    """

    def __init__(self, backend_names: frozenset[str], is_outside: Callable[[str], bool]) -> None:
        self._backend_names = backend_names
        self._is_outside = is_outside
        self._known: dict[ClassInfo, dict[str, Child]] = {}

    def of(self, cls: ClassInfo) -> dict[str, Child]:
        """Return the children that an object of ``cls`` holds, those that its bases put there too, by attribute."""
        if cls not in self._known:
            self._known[cls] = self._found(cls)
        return self._known[cls]

    def new(self, cls: ClassInfo) -> dict[str, Child]:
        """Return those that no base of ``cls`` holds already, under this name or another."""
        above = {name for base in cls.mro[1:] for name in self.of(base)}
        held = self.of(cls)
        sources = frozenset[str]().union(*(held[name].sources for name in above if name in held))
        return {name: child for name, child in held.items() if name not in above and not child.sources <= sources}

    def _found(self, cls: ClassInfo) -> dict[str, Child]:
        found: dict[str, Child] = {}
        others: set[str] = set()
        for owner in cls.mro:
            held = _Held(owner, self._backend_names, self._is_outside, found)
            for attribute, value in owner.held:
                sources = held.backends(value)
                if sources:
                    outer = frozenset(source for one in sources for source in _outer_names(cls, owner, one))
                    before = found[attribute].sources if attribute in found else frozenset[str]()
                    found[attribute] = Child(attribute, before | outer, by_use=False)
                elif _makes_an_object(value):
                    others.add(attribute)
        for owner in cls.mro:
            for attribute in _asked(owner):
                if attribute not in others:
                    found.setdefault(attribute, Child(attribute, frozenset({f"self.{attribute}"}), by_use=True))
        return found


class _Held:
    """Finds the backends in values that a class assigns."""

    def __init__(
        self,
        owner: ClassInfo,
        names: frozenset[str],
        is_outside: Callable[[str], bool],
        known: dict[str, Child],
    ) -> None:
        self._owner = owner
        self._names = names
        self._is_outside = is_outside
        self._known = known
        init = owner.methods.get("__init__")
        given = () if init is None else (*init.args.posonlyargs, *init.args.args, *init.args.kwonlyargs)
        self._parameters = {one.arg for one in given if one.annotation is not None and self._says(one.annotation)}

    def backends(self, value: ast.expr) -> frozenset[str]:
        """Return what children a value is made from; nothing where it holds none."""
        match value:
            case ast.Name(id=name):
                return frozenset({name} & self._parameters)
            case ast.Attribute():
                attribute = self_attribute(value)
                return self._known[attribute].sources if attribute in self._known else frozenset()
            case ast.List(elts=held) | ast.Tuple(elts=held) | ast.BoolOp(values=held):
                pass
            case ast.Call(func=ast.Name(id="list" | "tuple"), args=held):
                pass
            case ast.IfExp(body=body, orelse=orelse):
                held = [body, orelse]
            case ast.ListComp(elt=inner) | ast.Starred(value=inner):
                held = [inner]
            case ast.Call(func=function) if self._is_backend(function):
                return frozenset({f"{ast.unparse(function)}() in line {value.lineno}"})
            case _:
                return frozenset()
        return frozenset[str]().union(*(self.backends(one) for one in held))

    def _says(self, annotation: ast.expr) -> bool:
        """Whether an annotation names a backend or several, rather than something that makes one."""
        match annotation:
            case ast.Constant(value=str() as text):
                try:
                    return self._says(ast.parse(text, mode="eval").body)
                except SyntaxError:
                    return False
            case ast.Subscript(value=outer, slice=inner):
                return ast.unparse(outer).split(".")[-1] not in {"Callable", "type", "Type"} and self._says(inner)
            case ast.Tuple(elts=parts):
                return any(self._says(one) for one in parts)
            case ast.BinOp(left=left, right=right):
                return self._says(left) or self._says(right)
            case _:
                return self._is_backend(annotation)

    def _is_backend(self, expression: ast.expr) -> bool:
        """Whether a name, or what it was imported from, is that of a backend."""
        last = ast.unparse(expression).split(".")[-1]
        imported = self._owner.module.imports.get(last)
        original = imported.symbol if imported is not None and imported.symbol else last
        if original in self._names or original == ROOT_NAME:
            return True
        return imported is not None and self._is_outside(imported.module) and named_as_backend(original)


def named_as_backend(name: str) -> bool:
    """Whether a class whose source isn't found is a backend by its name."""
    return name.endswith(("AttentionBackend", "AttnBackend"))


def _makes_an_object(value: ast.expr) -> bool:
    """Whether a value calls what is written as a class."""
    if not isinstance(value, ast.Call):
        return False
    return ast.unparse(value.func).split(".")[-1].lstrip("_")[:1].isupper()


def _asked(owner: ClassInfo) -> Iterator[str]:
    """Attributes of ``self`` on which a hook is called, by themselves or one by one."""
    for method in owner.methods.values():
        loops = _loops(method)
        for node in ast.walk(method):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if node.func.attr not in _ASKED:
                continue
            of = node.func.value.value if isinstance(node.func.value, ast.Subscript) else node.func.value
            name = self_attribute(of)
            if name is not None:
                yield name
            elif isinstance(of, ast.Name):
                yield from loops.get(of.id, ())


def _loops(method: Function) -> dict[str, tuple[str, ...]]:
    """Names that go through attributes of ``self``, with those attributes."""
    found: dict[str, tuple[str, ...]] = {}
    for node in ast.walk(method):
        if not isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            continue
        if isinstance(node.target, ast.Name):
            attributes = _listed(node.iter)
            if attributes:
                found[node.target.id] = attributes
        elif isinstance(node.target, ast.Tuple) and isinstance(node.iter, ast.Call):
            for target, iterated in zip(node.target.elts, node.iter.args, strict=False):  # zip(self.children, parts)
                if isinstance(target, ast.Name) and _listed(iterated):
                    found[target.id] = _listed(iterated)
    return found


def _listed(iterated: ast.expr) -> tuple[str, ...]:
    if isinstance(iterated, ast.Tuple | ast.List):
        return tuple(name for one in iterated.elts for name in _listed(one))
    if isinstance(iterated, ast.Starred):
        return _listed(iterated.value)
    name = self_attribute(iterated)
    return () if name is None else (name,)


def _outer_names(cls: ClassInfo, owner: ClassInfo, name: str) -> frozenset[str]:
    """Return how the outermost ``__init__`` of ``cls`` names what that of ``owner`` calls ``name``."""
    names = frozenset({name})
    inits = [one for one in cls.mro[: cls.mro.index(owner) + 1] if "__init__" in one.methods]
    for inner, outer in zip(inits[::-1], inits[-2::-1], strict=False):
        passed = _passed(outer.methods["__init__"], inner.methods["__init__"])
        names = frozenset(new for one in names for new in passed.get(one, frozenset({one})))
    return names


def _passed(outer: Function, inner: Function) -> dict[str, frozenset[str]]:
    """Return, for each parameter of ``inner``, the names in what ``outer`` passes to ``super().__init__``."""
    for node in ast.walk(outer):
        match node:
            case ast.Call(func=ast.Attribute(value=of, attr="__init__")) if is_super(of):
                parameters = [one.arg for one in inner.args.args[1:]]
                given = dict(zip(parameters, node.args, strict=False))
                given |= {one.arg: one.value for one in node.keywords if one.arg is not None}
                return {name: _names_in(value) for name, value in given.items() if _names_in(value)}
            case _:
                pass
    return {}


def _names_in(value: ast.expr) -> frozenset[str]:
    return frozenset(node.id for node in ast.walk(value) if isinstance(node, ast.Name)) - {"self"}
