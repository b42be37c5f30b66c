"""The tree that is drawn in the module's docstring is the tree of the classes."""

from __future__ import annotations

import inspect
import re

from sglang_fence import errors

_LINE = re.compile(r"^(?P<branch>[│├└─ ]*)(?P<name>[A-Z]\w+)\b +(?P<about>\S.*)$")
_STEP = 4  # columns a level


def _drawn() -> list[tuple[str, str, str]]:
    """Return (class, parent, description) of each line of the drawing, top to bottom."""
    docstring = inspect.cleandoc(errors.__doc__ or "")
    path: list[str] = []
    rows: list[tuple[str, str, str]] = []
    for line in docstring.split("::\n", 1)[1].splitlines():
        if line and not line.startswith(" "):
            break
        if match := _LINE.match(line.removeprefix("    ")):
            depth, remainder = divmod(len(match["branch"]), _STEP)
            assert remainder == 0, f"crooked branch: {line!r}"
            path[depth:] = [match["name"]]
            rows.append((match["name"], path[depth - 1] if depth else "Exception", match["about"]))
    return rows


def _defined() -> list[tuple[str, str]]:
    classes = [c for _, c in inspect.getmembers(errors, inspect.isclass) if c.__module__ == errors.__name__]
    return [(c.__name__, c.__bases__[0].__name__) for c in classes]


def test_the_drawn_tree_is_the_tree_of_the_classes() -> None:
    drawn = [(name, parent) for name, parent, _ in _drawn()]
    assert sorted(drawn) == sorted(_defined())
    assert len(drawn) == len(set(drawn))


def test_every_class_has_one_base_and_a_docstring_of_its_own() -> None:
    for name, _ in _defined():
        error = getattr(errors, name)
        assert len(error.__bases__) == 1, name
        assert error.__doc__, name


def test_users_and_internal_errors_are_apart() -> None:
    assert not issubclass(errors.UserError, errors.InternalError)
    assert not issubclass(errors.InternalError, errors.UserError)
    assert all(
        issubclass(getattr(errors, name), errors.UserError | errors.InternalError)
        for name, _ in _defined()
        if name != "FenceError"
    )
