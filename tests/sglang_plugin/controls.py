"""What a server does without the plugin, and what it is asked."""

from __future__ import annotations

from random import Random
from typing import NamedTuple


class Control(NamedTuple):
    """What a server does without the plugin."""

    tokens: list[list[int]]
    metrics: str
    files: set[str]
    """What it leaves in its temporary folder."""


def prompts() -> list[list[int]]:
    """Return 50 prompts, the same each time."""
    random = Random(7)  # noqa: S311 - no secret
    return [[random.randrange(2, 200) for _ in range(random.randrange(3, 40))] for _ in range(50)]
