"""docs/benchmarks.md: the figures of its files, and nothing where a file is missing."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from sglang_fence.bench.result_files import to_text
from sglang_fence.cli.benchmarks_page import benchmarks_page, benchmarks_plot
from sglang_fence.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from sglang_fence.bench.fence_result import FenceResult
    from sglang_fence.bench.runtime_result import RuntimeResult

CUDA = {"device": "cuda", "gpu": "NVIDIA H200"}


@pytest.fixture
def results(tmp_path: Path, fence_result: FenceResult, runtime_result: RuntimeResult) -> Path:
    """Write a folder of results."""
    (tmp_path / "fence.json").write_text(to_text("fence", fence_result.to_json()), encoding="utf-8")
    (tmp_path / "runtime.json").write_text(to_text("runtime", runtime_result.to_json()), encoding="utf-8")
    return tmp_path


def test_without_files_the_page_says_what_is_missing_and_has_no_figures(tmp_path: Path) -> None:
    page = benchmarks_page(tmp_path)
    assert page.count("**The figures are missing:**") == 2
    for bench in ("fence", "runtime"):
        assert f"there is no `docs/benchmarks/{bench}.json` yet" in page
    assert "Measured on" not in page
    assert "steps/s |" not in page
    with pytest.raises(ConfigError, match="can't be read"):
        benchmarks_plot(tmp_path)


def test_tables_have_the_figures(results: Path) -> None:
    page = benchmarks_page(results)
    assert "figures are missing" not in page
    ones = "1.000 (1.000 … 1.000)"
    closer = f"| 40 | 4,000 | 4,000 | {ones} | 0.862 (0.862 … 0.862) | 0.893 (0.893 … 0.893) | {ones} | {ones} |"
    assert f"{closer} 1.160 (1.160 … 1.160) |" in page
    assert f"| 0.1 | 0.3 | 3,311 | 1.000 | {ones} | {ones} | {ones} | 1.000 |" in page
    assert "| float32 | 18 of 18 | " in page
    for batch in (1, 3):
        assert f"| {batch} | generate | " in page


def test_virtual_time_is_no_measurement_and_meets_nothing(results: Path) -> None:
    page = benchmarks_page(results)
    assert page.count("**Not a measurement:** made on the simulated device") == 2
    assert "is meant to" not in page


def test_a_gpus_figures_are_held_against_what_is_wanted(
    tmp_path: Path, fence_result: FenceResult, runtime_result: RuntimeResult
) -> None:
    fence = dataclasses.replace(fence_result, machine=CUDA)
    (tmp_path / "fence.json").write_text(to_text("fence", fence.to_json()), encoding="utf-8")
    runtime = dataclasses.replace(runtime_result, machine=CUDA)
    (tmp_path / "runtime.json").write_text(to_text("runtime", runtime.to_json()), encoding="utf-8")
    page = benchmarks_page(tmp_path)
    assert page.count("Measured on: GPU NVIDIA H200.") == 2
    assert "0.985 of the fence off: 1.000, met; and 1.15 of the coarse one: 1.160, met." in page
    for batch in runtime_result.batches:
        met = "met" if batch.step_us["runtime"].ratio <= 1 else "**not met**"
        assert f"* Batch {batch.batch}: a step is meant to be no slower than `generate`'s, {met};" in page


def test_what_is_not_reached_is_said(tmp_path: Path, fence_result: FenceResult) -> None:
    slow = [
        dataclasses.replace(
            cell, variants={**cell.variants, "fine IN": cell.variants["coarse"].against(cell.variants["off"])}
        )
        for cell in fence_result.cells
    ]
    fence = dataclasses.replace(fence_result, machine=CUDA, cells=tuple(slow))
    (tmp_path / "fence.json").write_text(to_text("fence", fence.to_json()), encoding="utf-8")
    page = benchmarks_page(tmp_path)
    assert "0.862, **not met**; and 1.15 of the coarse one: 1.000, **not met**." in page


def test_rows_have_as_many_cells_as_their_heads(results: Path) -> None:
    for before, line in pairwise(benchmarks_page(results).splitlines()):
        if line.startswith("|") and before.startswith("|"):
            assert line.count("|") == before.count("|"), line
