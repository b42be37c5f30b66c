"""The C sources, and how one version of a source is told from another."""

from __future__ import annotations

import hashlib
from pathlib import Path

HERE = Path(__file__).resolve().parent


def sources() -> list[Path]:
    """Return the C sources; each is a module of its own, called as its file is."""
    return sorted(HERE.glob("*.c"))


def digest(source: Path) -> str:
    """Return what tells one version of a source from another: a module says by it what it was compiled from."""
    return hashlib.sha256(source.read_bytes()).hexdigest()[:16]
