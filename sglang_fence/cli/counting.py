"""Counts with their nouns: one step, two steps."""

from __future__ import annotations


def many(count: int, noun: str, plural: str | None = None) -> str:
    """Return a count with its noun: ``1 step``, ``1,200 steps``; ``plural`` where that isn't the noun with an s."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"
