"""The static check of released packages: the committed table, and that the check sees what it should."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from sglang_fence.sglang_plugin.source import MISSING, PRESENT, SIGNATURE, check_sources, package_folder
from sglang_fence.sglang_plugin.targets import KNOWN_VERSIONS, LOOPS, ONLY_MARKED, TARGETS, Target

TABLE: dict[str, dict[str, str]] = json.loads((Path(__file__).parent / "data/hooks.json").read_text(encoding="utf-8"))

CODE = """
class Runner:
    def plain(self, batch, *, key=None): ...

    @staticmethod
    def all_kinds(first, /, second, *rest, third, **more): ...

    shared = None


def free(batch): ...
"""


def test_the_table_has_a_row_for_each_target_in_each_version() -> None:
    assert tuple(TABLE) == KNOWN_VERSIONS
    paths = {target.path for target in TARGETS}
    assert all(set(rows) == paths for rows in TABLE.values())


def test_every_known_version_has_every_target() -> None:
    assert {state for rows in TABLE.values() for state in rows.values()} == {PRESENT}


@pytest.mark.parametrize("version", KNOWN_VERSIONS)
def test_the_released_package_is_as_the_table_says(version: str) -> None:
    folder = os.environ.get("SGLANG_FENCE_TEST_WHEELS")
    if folder is None:
        pytest.skip("SGLANG_FENCE_TEST_WHEELS names no folder of unpacked wheels, VERSION/sglang")
    assert check_sources(Path(folder) / version / "sglang", TARGETS) == TABLE[version]


def test_keys_and_paths_are_unique_and_each_loop_is_a_target() -> None:
    assert len({target.key for target in TARGETS}) == len({target.path for target in TARGETS}) == len(TARGETS)
    assert set(LOOPS) <= {target.key for target in TARGETS} >= set(ONLY_MARKED)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    (tmp_path / "sglang/srt").mkdir(parents=True)
    (tmp_path / "sglang/srt/runner.py").write_text(CODE)
    return tmp_path / "sglang"


METHOD = Target("plain", "sglang.srt.runner", "Runner", "plain", (("self", "batch", "key"),), "nothing")


@pytest.mark.parametrize(
    ("target", "state"),
    [
        (METHOD, PRESENT),
        (replace(METHOD, signatures=(("self",), ("self", "batch", "key"))), PRESENT),
        (replace(METHOD, signatures=(("self", "batch"),)), SIGNATURE),
        (replace(METHOD, signatures=(("self", "key", "batch"),)), SIGNATURE),
        (replace(METHOD, name="all_kinds", signatures=(("first", "second", "rest", "third", "more"),)), PRESENT),
        (replace(METHOD, name="shared"), MISSING),
        (replace(METHOD, name="gone"), MISSING),
        (replace(METHOD, owner="Gone"), MISSING),
        (replace(METHOD, owner=None), MISSING),
        (replace(METHOD, owner=None, name="free", signatures=(("batch",),)), PRESENT),
        (replace(METHOD, module="sglang.srt.gone"), MISSING),
    ],
    ids=lambda value: value if isinstance(value, str) else value.path,
)
def test_a_function_is_there_only_with_a_known_signature(package: Path, target: Target, state: str) -> None:
    assert check_sources(package, [target]) == {target.path: state}


def test_a_package_is_found_without_importing_it() -> None:
    folder = package_folder("sglang_fence")
    assert folder is not None
    assert (folder / "contract.py").is_file()
    assert package_folder("no_such_package_anywhere") is None
