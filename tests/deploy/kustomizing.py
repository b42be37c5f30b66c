"""The overlay as a real kustomize builds it."""

from __future__ import annotations

import json
import re
import shutil
from functools import cache
from typing import Any

import pytest

from tests.deploy.layout import DEPLOY, accepted, documents, run

OVERLAY = DEPLOY / "kubernetes" / "overlays" / "production"
OLDEST = (4, 0, 0)
"""Debian's kubectl has 2.0.3 inside, which takes no folder as a resource and knows no ``patches``."""


@cache
def _tool() -> tuple[str, ...] | None:
    if shutil.which("kustomize"):
        return ("kustomize", "build")
    if shutil.which("kubectl") is None:
        return None
    done = run("kubectl", "version", "--client", "--output=json")
    version = json.loads(done.stdout or "{}").get("kustomizeVersion", "")
    found = re.fullmatch(r"v(\d+)\.(\d+)\.(\d+).*", version)
    return ("kubectl", "kustomize") if found and tuple(map(int, found.groups())) >= OLDEST else None


@cache
def _built(command: tuple[str, ...]) -> str:
    return accepted(*command, OVERLAY)


def built() -> list[dict[str, Any]]:
    """Return the overlay's objects, or skip the test."""
    command = _tool()
    if command is None:
        pytest.skip("needs kustomize 4 or newer, alone or in kubectl")
    return documents(_built(command))


def only(kind: str) -> dict[str, Any]:
    """Return the one object of a kind."""
    (found,) = (document for document in built() if document["kind"] == kind)
    return found
