"""Counts with their nouns: one step, two steps."""

from __future__ import annotations


def noun(count: int, one: str, several: str | None = None) -> str:
    """Return what ``count`` of something are called; ``several`` where that isn't ``one`` with an s."""
    return one if count == 1 else several or f"{one}s"


def many(count: int, one: str, several: str | None = None) -> str:
    """Return a count with its noun: ``1 step``, ``1,200 steps``."""
    return f"{count:,} {noun(count, one, several)}"
