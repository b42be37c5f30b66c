"""What a service of the compose file sees: its mounts, laid out in a folder as they are in the container."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.deploy.layout import COMPOSE, load

if TYPE_CHECKING:
    from pathlib import Path


class Bind(NamedTuple):
    """A file or folder of the repository in a container."""

    source: Path
    target: str
    mode: str


def services() -> dict[str, dict[str, Any]]:
    """Return the compose file's services, anchors resolved."""
    found: dict[str, dict[str, Any]] = load(COMPOSE)["services"]
    return found


def binds(service: dict[str, Any]) -> list[Bind]:
    """Return its mounts that aren't volumes."""
    found: list[Bind] = []
    for volume in service.get("volumes", ()):
        source, target, *mode = volume.split(":")
        if source.startswith("."):
            found.append(Bind((COMPOSE.parent / source).resolve(), target, "".join(mode)))
    return found


def lay_out(name: str, top: Path) -> Path:
    """Copy the mounts of a service below ``top``."""
    for bind in binds(services()[name]):
        target = top / bind.target.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if bind.source.is_dir():
            shutil.copytree(bind.source, target)
        else:
            shutil.copy(bind.source, target)
    return top
