"""A process with a tool attached, and what the tool heard."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sglang_fence.catalogue import NVTX_DOMAIN
from sglang_fence.errors import ConfigError
from sglang_fence.testing import NvtxEvent, build_nvtx_injection, nvtx_environment, read_nvtx_log

if TYPE_CHECKING:
    from collections.abc import Callable

EMITTING = Path(__file__).with_name("emitting.py")
TIMEOUT = 120

Heard = tuple[dict[str, Any], list[NvtxEvent]]
"""What a process said of itself, and what the tool heard of it."""


def a_library(folder: Path, *flags: str) -> Path:
    try:
        return build_nvtx_injection(folder, *flags)
    except ConfigError as error:
        if "no C compiler" in str(error):
            pytest.skip(str(error))
        raise


@pytest.fixture(scope="session")
def injection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the tool, built."""
    return a_library(tmp_path_factory.mktemp("nvtx"))


@pytest.fixture(scope="session")
def core_only(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a tool that knows no extension."""
    return a_library(tmp_path_factory.mktemp("nvtx_core_only"), "-DNVTX_INJECTION_CORE_ONLY")


@pytest.fixture
def heard(tmp_path: Path) -> Callable[..., Heard]:
    """Return a function that runs a scenario of emitting.py, with a tool or without."""

    def run(scenario: str, library: Path | None = None, **variables: str) -> Heard:
        log = tmp_path / f"{scenario}.jsonl"
        inherited = {name: value for name, value in os.environ.items() if "NVTX" not in name}
        attached = {} if library is None else nvtx_environment(library, log)
        done = subprocess.run(
            [sys.executable, str(EMITTING), scenario],
            env=inherited | attached | variables,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        events = read_nvtx_log(log, NVTX_DOMAIN) if log.exists() else []
        return json.loads(done.stdout.splitlines()[-1]), events

    return run
