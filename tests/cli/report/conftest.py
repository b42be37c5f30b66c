"""A run's record, a real capture and its analysis: what a page is made from."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sglang_fence.analyze.report import analyse
from sglang_fence.analyze.serialising import to_json
from tests.analyze.expectations import unpack

RUN = (sys.executable, "-m", "sglang_fence", "run", "--device", "simulated", "--requests", "12", "--seed", "3")


def recorded(folder: Path, name: str, *more: str) -> Path:
    """Serve prompts and return the run's record; its ``--json`` lies beside it."""
    path = folder / f"{name}.json"
    command = [*RUN, "--max-new-tokens", "12", "--record", str(path), "--json", str(folder / f"{name}.run.json"), *more]
    done = subprocess.run(command, check=False, capture_output=True, timeout=300)
    assert done.returncode in {0, 1}, done.stderr  # 1: hazards, which an unfenced run has
    return path


@pytest.fixture(scope="session")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("fine"), "fine")


@pytest.fixture(scope="session")
def coarse_record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("coarse"), "coarse", "--fence", "coarse")


@pytest.fixture(scope="session")
def untimed_record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in which no step was timed in turn, though each was traced; and nothing was checked."""
    folder = tmp_path_factory.mktemp("untimed")
    return recorded(folder, "untimed", "--timing-every", "0", "--no-check-hazards")


@pytest.fixture(scope="session")
def off_record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("off"), "off", "--fence", "off")


@pytest.fixture(scope="session")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("full", tmp_path_factory.mktemp("capture") / "full.sqlite")


@pytest.fixture(scope="session")
def analysis(capture: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("analysis") / "steps.json"
    path.write_text(json.dumps(to_json(analyse(capture))), encoding="utf-8")
    return path
