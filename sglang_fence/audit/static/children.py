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
from sglang_fence.audit.static.vocabulary import DECLARATION, EAGER, IN_GRAPH, OUT_GRAPH, SNAPSHOTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sglang_fence.audit.static.classes import ClassInfo, Function
    from sglang_fence.audit.static.world import World

_ASKED = frozenset({DECLARATION, EAGER, OUT_GRAPH, *IN_GRAPH, *SNAPSHOTS})


@dataclass(frozen=True, slots=True)
class Child:
    """An attribute that holds one child backend or several."""

    attribute: str
    sources: frozenset[str]
    """What it was made from, as the outermost ``__init__`` names it: two attributes with the same are the same child."""
    by_use: bool
    """Known by a hook that is called on it alone."""


def children(world: World, cls: ClassInfo) -> dict[str, Child]:
    """Return the children that an object of ``cls`` holds, those that its bases put there too."""
    found: dict[str, Child] = {}
    for owner in cls.mro:
        backends = _backend_parameters(world, owner)
        for attribute, value in owner.held:
            sources = _held_backends(world, owner, value, backends, found)
            if sources:
                outer = frozenset(source for one in sources for source in _outer_names(cls, owner, one))
                before = found[attribute].sources if attribute in found else frozenset[str]()
                found[attribute] = Child(attribute, before | outer, by_use=False)
    for owner in cls.mro:
        for attribute in _asked(owner):
            found.setdefault(attribute, Child(attribute, frozenset({f"self.{attribute}"}), by_use=True))
    return found


def own_children(world: World, cls: ClassInfo) -> dict[str, Child]:
    """Return those children that no base of ``cls`` holds already."""
    above = {name for base in cls.mro[1:] for name in children(world, base)}
    return {name: child for name, child in children(world, cls).items() if name not in above}


def _backend_parameters(world: World, owner: ClassInfo) -> frozenset[str]:
    """Parameters of ``__init__`` that are annotated as a backend, or as several."""
    init = owner.methods.get("__init__")
    if init is None:
        return frozenset()
    given = (*init.args.posonlyargs, *init.args.args, *init.args.kwonlyargs)
    return frozenset(one.arg for one in given if one.annotation is not None and _says_backend(world, one.annotation))


def _says_backend(world: World, annotation: ast.expr) -> bool:
    """Whether an annotation names a backend, rather than something that makes one."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            annotation = ast.parse(annotation.value, mode="eval").body
        except SyntaxError:
            return False
    if isinstance(annotation, ast.Subscript):
        if ast.unparse(annotation.value).split(".")[-1] in {"Callable", "type", "Type"}:
            return False
        return _says_backend(world, annotation.slice)
    if isinstance(annotation, ast.Tuple):
        return any(_says_backend(world, one) for one in annotation.elts)
    if isinstance(annotation, ast.BinOp):
        return _says_backend(world, annotation.left) or _says_backend(world, annotation.right)
    return ast.unparse(annotation).split(".")[-1] in world.backend_names


def _held_backends(
    world: World,
    owner: ClassInfo,
    value: ast.expr,
    parameters: frozenset[str],
    known: dict[str, Child],
) -> frozenset[str]:
    """Return what children a value is made from; nothing where it holds none."""
    match value:
        case ast.Name(id=name):
            return frozenset({name} & parameters)
        case ast.Attribute():
            attribute = self_attribute(value)
            return known[attribute].sources if attribute in known else frozenset()
        case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.BoolOp(values=parts):
            held = parts
        case ast.IfExp(body=body, orelse=orelse):
            held = [body, orelse]
        case ast.ListComp(elt=made):
            held = [made]
        case ast.Starred(value=inner):
            held = [inner]
        case ast.Call(func=ast.Name(id="list" | "tuple"), args=arguments):
            held = arguments
        case ast.Call(func=function):
            made_by = world.named(owner.module, function)
            is_backend = made_by is not None and world.is_backend(made_by)
            return frozenset({f"{ast.unparse(function)}() in line {value.lineno}"}) if is_backend else frozenset()
        case _:
            return frozenset()
    return frozenset[str]().union(*(_held_backends(world, owner, one, parameters, known) for one in held))


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
