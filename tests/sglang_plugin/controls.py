"""What a server does without the plugin, and what it is asked."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path


class Control(NamedTuple):
    """What a server does without the plugin."""

    tokens: list[list[int]]
    metrics: str
    files: Counter[str]


def files_left(folder: Path) -> Counter[str]:
    """Return what a server left in its temporary folder; SGLang's own sockets have names made at random."""
    return Counter("random" if path.name.startswith("tmp") else path.name for path in folder.iterdir())


def prompts() -> list[list[int]]:
    """Return 50 prompts, the same each time."""
    random = Random(7)  # noqa: S311 - no secret
    return [[random.randrange(2, 200) for _ in range(random.randrange(3, 40))] for _ in range(50)]
