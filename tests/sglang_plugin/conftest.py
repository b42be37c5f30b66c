"""Fixtures: the environments with a real SGLang, and what each does without the plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.sglang_plugin.controls import Control, files_left, prompts
from tests.sglang_plugin.serving import environments, serve, version_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Undo that tests marked ``sglang`` are skipped where this interpreter has no SGLang: these bring their own."""
    for item in items:
        if "environment" in getattr(item, "fixturenames", ()):
            item.own_markers = [mark for mark in item.own_markers if mark.kwargs.get("reason") != "needs SGLang"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test that takes an environment in each of them; skip it where there is none."""
    if "environment" in metafunc.fixturenames:
        found: list[object] = [pytest.param(path, id=version_of(path)) for path in environments()]
        skip = pytest.mark.skip(reason="SGLANG_FENCE_TEST_ENVS names no environment with SGLang")
        metafunc.parametrize("environment", found or [pytest.param(None, marks=skip)], scope="session")


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
