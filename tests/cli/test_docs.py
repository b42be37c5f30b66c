"""Pages of docs/ that are made, from the catalogue or from results, are what the command makes now."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sglang_fence.catalogue import METRICS
from sglang_fence.cli.app import app
from sglang_fence.contract import FallbackReason

DOCS = Path(__file__).resolve().parents[2] / "docs"


def made(page: str, results: Path = DOCS / "benchmarks") -> str:
    done = CliRunner().invoke(app, ["docs", page, "--results", str(results)])
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("page", ["metrics", "benchmarks"])
def test_the_committed_page_is_what_is_made(page: str) -> None:
    committed = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    assert committed == made(page), f"run: .venv/bin/sglang-fence docs {page} > docs/{page}.md"


def test_the_committed_plot_is_what_is_made_where_there_are_figures() -> None:
    figures, plot = DOCS / "benchmarks" / "fence.json", DOCS / "benchmarks" / "fence.svg"
    assert figures.exists() == plot.exists()
    if figures.exists():
        expected = made("benchmarks-plot")
        assert plot.read_text(encoding="utf-8") == expected, f"run: sglang-fence docs benchmarks-plot > {plot}"


def test_the_page_names_every_metric_label_and_reason_once() -> None:
    rows = [line.split(" | ")[0] for line in made("metrics").splitlines() if line.startswith("| `")]
    assert [row for row in rows if "sglang_fence_" in row] == [
        f"| `{metric.name}`" for kind in ("counter", "gauge", "histogram") for metric in METRICS if metric.kind == kind
    ]
    labels = {label.name for metric in METRICS for label in metric.labels}
    assert {f"| `{label}`" for label in labels} <= set(rows)
    assert rows[-len(FallbackReason) :] == [f"| `{reason.value}`" for reason in FallbackReason]


def test_cells_do_not_break_the_tables() -> None:
    page = made("metrics").splitlines()
    for before, line in pairwise(page):
        if line.startswith("|") and before.startswith("|"):
            assert line.replace("\\|", "").count("|") == before.replace("\\|", "").count("|"), line
