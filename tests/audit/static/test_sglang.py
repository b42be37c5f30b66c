"""SGLang's releases: what is found is what the documentation judges, and four wrappers that don't delegate are found.

``SGLANG_FENCE_TEST_WHEELS`` names a folder of unpacked wheels, VERSION/sglang; ``SGLANG_FENCE_TEST_ENVS`` names
environments with SGLang, separated by colons.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from sglang_fence.audit.static.report import audit_statically
from tests.audit.static.trees import silent, without_methods

DOCUMENT = Path(__file__).parents[3] / "docs" / "audit-static.md"
JUDGED = "0.5.23"
FOUR = {
    "hybrid_attn_backend.py": "HybridAttnBackend",
    "tbo_backend.py": "TboAttnBackend",
    "hybrid_linear_attn_backend.py": "HybridLinearAttnBackend",
    "minimax_sparse_backend.py": "MiniMaxHybridAttnBackend",
}


def released() -> dict[str, Path]:
    """Return the folders of SGLang's package by version."""
    wheels = Path(os.environ.get("SGLANG_FENCE_TEST_WHEELS") or os.devnull)
    found = {folder.parent.name: folder for folder in wheels.glob("*/sglang")}
    for environment in os.environ.get("SGLANG_FENCE_TEST_ENVS", "").split(":"):
        for marked in Path(environment or os.devnull).glob("lib/python3*/site-packages/sglang-*.dist-info"):
            found[marked.name.removeprefix("sglang-").removesuffix(".dist-info")] = marked.parent / "sglang"
    return found


SKIP = pytest.mark.skip(reason="SGLANG_FENCE_TEST_WHEELS and SGLANG_FENCE_TEST_ENVS name no SGLang")


@pytest.mark.parametrize("version", sorted(released()) or [pytest.param("", marks=SKIP)])
def test_four_wrappers_that_do_not_delegate_are_found(version: str, tmp_path: Path) -> None:
    copied = tmp_path / "sglang" / "srt" / "layers" / "attention"
    installed = released()[version] / "srt" / "layers" / "attention"
    shutil.copytree(installed, copied, ignore=shutil.ignore_patterns("__pycache__"))
    as_released = silent(audit_statically(str(copied)), "shared_read_ends")
    for name, wrapper in FOUR.items():
        source = (copied / name).read_text(encoding="utf-8")
        (copied / name).write_text(without_methods(source, wrapper, {"shared_read_ends"}), encoding="utf-8")
    found = silent(audit_statically(str(copied)), "shared_read_ends")
    assert not as_released & set(FOUR.values())
    assert set(FOUR.values()) <= found


def test_each_finding_is_judged_in_the_documentation() -> None:
    if JUDGED not in released():
        pytest.skip(f"SGLANG_FENCE_TEST_WHEELS and SGLANG_FENCE_TEST_ENVS name no SGLang {JUDGED}")
    report = audit_statically(str(released()[JUDGED]))
    found = {f"{one.path.name}:{one.line} {one.rule} {one.class_name} {one.severity}" for one in report.findings}
    rows = re.findall(
        r"^\| `([\w./]+:\d+)` \| `([\w-]+)` \| `(\w+)`[^|]* \| (\w+) \|", DOCUMENT.read_text("utf-8"), re.MULTILINE
    )
    assert found == {f"{place.rpartition('/')[2]} {rule} {name} {severity}" for place, rule, name, severity in rows}
    assert len(rows) == len(report.findings)
