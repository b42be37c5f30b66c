"""Keeping Python from collecting garbage for a while: what it frees may call the device, and looking takes time."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator


@contextmanager
def no_garbage_collection() -> Generator[None]:
    """Collect no garbage meanwhile, in the whole process; afterwards as before."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
