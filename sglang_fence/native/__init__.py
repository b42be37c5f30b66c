"""The compiled parts: what a step calls, without Python's own cost. Optional; all works without them.

Each is a C source of this folder and a module of the same name. :func:`part` says whether it is there and may be used.
One that says that it was compiled from another source than the one beside it is left alone: it may do something else.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from sglang_fence.environ import FENCE_NATIVE
from sglang_fence.errors import ConfigError
from sglang_fence.native.sources import digest, sources

if TYPE_CHECKING:
    from collections.abc import Mapping

MOMENTS = "_moments"
"""Takes and reads a step's device moments through the CUDA driver."""

QUICK = "_quick"
"""Recognises steps that repeat the one before, and counts them, for the plugin."""


class Part(NamedTuple):
    """One of the compiled parts."""

    name: str
    usable: bool
    why: str
    """``compiled``, or what is in the way."""


def part(name: str, environ: Mapping[str, str] | None = None) -> Part:
    """Say how a compiled part is.

    Args:
        name: such as :data:`MOMENTS`.
        environ: where the switch is looked for; by default the process's environment.
    """
    if not switched_on(os.environ if environ is None else environ):
        return Part(name, usable=False, why=f"switched off by {FENCE_NATIVE.name}")
    try:
        module = import_module(f"{__name__}.{name}")
    except ModuleNotFoundError:
        return Part(name, usable=False, why="not compiled")
    except ImportError as error:
        return Part(name, usable=False, why=f"can't be loaded: {error}")
    of = next((digest(source) for source in sources() if source.stem == name), None)
    if of is not None and getattr(module, "SOURCE", of) != of:
        return Part(name, usable=False, why="compiled from another source: run python -m sglang_fence.native.build")
    return Part(name, usable=True, why="compiled")


def parts(environ: Mapping[str, str] | None = None) -> list[Part]:
    """Return all of them."""
    return [part(source.stem, environ) for source in sources()]


def summary(environ: Mapping[str, str] | None = None) -> str:
    """Say in a few words which are used: ``moments``, say, or ``none (not compiled)``."""
    found = parts(environ)
    used = [one.name.strip("_") for one in found if one.usable]
    why = {one.why: None for one in found if not one.usable}
    if not why:
        return ", ".join(used)
    return f"{', '.join(used) or 'none'} ({'; '.join(why)})"


def switched_on(environ: Mapping[str, str]) -> bool:
    """Whether compiled parts may be used. A switch that isn't a boolean is complained of elsewhere, and is on here."""
    if not environ.get(FENCE_NATIVE.name, "").strip():
        return FENCE_NATIVE.default
    try:
        return FENCE_NATIVE.read(environ)
    except ConfigError:
        return FENCE_NATIVE.default
