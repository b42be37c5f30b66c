"""Fixtures: the environments with a real SGLang, and what each does without the plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.sglang_plugin.controls import Control, files_left, prompts
from tests.sglang_plugin.serving import environments, serve, version_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test that takes an environment in each of them; without one it has its mark's skip, and nothing else."""
    if "environment" in metafunc.fixturenames:
        found: list[object] = [pytest.param(path, id=version_of(path)) for path in environments()]
        metafunc.parametrize("environment", found or [None], scope="session")


@pytest.fixture(scope="session")
def control(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Control]:
    """Return what an environment's server does without the plugin; it is asked once."""
    known: dict[Path, Control] = {}

    def ask(environment: Path) -> Control:
        if environment not in known:
            scratch = tmp_path_factory.mktemp("control")
            with serve(environment, scratch, environ={"SGLANG_PLUGINS": "none"}) as server:
                tokens = server.generate(prompts())
                metrics = server.metrics()
            known[environment] = Control(tokens, metrics, files_left(scratch))
        return known[environment]

    return ask
