"""Fixtures: references that are made once a session, and the command line run in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from tests.runtime.commandline import CommandLine
from tests.runtime.reference import References

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Generator[None]:
    """One thread of torch: test processes share the cores, and these models are small."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def references() -> References:
    """Return the reference models, with their answers kept."""
    return References()


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """Return the command line, run in this process, without the environment's switches."""
    return CommandLine(tmp_path, monkeypatch, capsys)
