"""Where deployment files lie, how they are read, and the programs that judge them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # its stubs are a package of their own, for tests of configuration alone

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE = DEPLOY / "compose" / "compose.yaml"
RULES = ROOT / "dashboards" / "sglang-fence.rules.yaml"
DASHBOARDS = ROOT / "sglang_fence" / "mixin" / "dashboards"
SECONDS = 120

PINNED = re.compile(r"(?:[\w.-]+/)*[\w.-]+:v?\d+\.\d+\.\d+(?:-\d+\.\d+\.\d+|-slim-bookworm)?")
"""An image by its full version, such as ``prom/prometheus:v3.5.0``; ours name SGLang's version, then our own."""


def load(path: Path) -> Any:  # noqa: ANN401 - YAML
    """Return the one document of a file."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def documents(text: str) -> list[dict[str, Any]]:
    """Return all documents of a text."""
    return [document for document in yaml.safe_load_all(text) if document]


def dump(document: object) -> str:
    """Return a document as text; JSON is YAML."""
    return json.dumps(document, indent=1)


def program(name: str) -> str:
    """Return the path of ``name``, or skip the test."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"needs {name}")
    return found


def run(*command: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run it to its end, whatever the status."""
    # docker-compose is Python as well, with another's packages.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )


def accepted(*command: str | Path, cwd: Path = ROOT) -> str:
    """Run it, insist on success, and return what it printed."""
    done = run(*command, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def dashboards() -> dict[str, Any]:
    """Return the dashboards that were built, by the names of their files."""
    found = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in sorted(DASHBOARDS.glob("*.json"))}
    assert found
    return found
