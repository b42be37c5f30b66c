"""The C sources, and how one version of a source is told from another."""

from __future__ import annotations

import hashlib
from pathlib import Path

HERE = Path(__file__).resolve().parent


def sources() -> list[Path]:
    """Return the C sources; each is a module of its own, called as its file is."""
    return sorted(HERE.glob("*.c"))


def digest(source: Path) -> str:
    """Return what tells one version of a source, and of its headers, from another.

    The compiler is given it as ``SOURCE``, for the module to keep under that name: it says what it was compiled from.
    """
    headers = sorted(source.parent.glob(f"{source.stem}*.h"))
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in (source, *headers))).hexdigest()[:16]
