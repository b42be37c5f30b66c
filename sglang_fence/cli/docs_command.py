"""``sglang-fence docs``: pages of the documentation that are made, from the catalogue or from results."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from sglang_fence.cli.benchmarks_page import benchmarks_page, benchmarks_plot
from sglang_fence.cli.metrics_page import metrics_page


class Page(StrEnum):
    """Pages that can be made."""

    METRICS = "metrics"
    BENCHMARKS = "benchmarks"
    BENCHMARKS_PLOT = "benchmarks-plot"


def docs(
    page: Annotated[Page, typer.Argument(help="Which page.")],
    results: Annotated[Path, typer.Option(help="Folder of result files.")] = Path("docs/benchmarks"),
) -> None:
    """Print a page of docs/ that is made: ``sglang-fence docs metrics > docs/metrics.md``."""
    if page is Page.METRICS:
        made = metrics_page()
    elif page is Page.BENCHMARKS:
        made = benchmarks_page(results)
    else:
        made = benchmarks_plot(results)
    typer.echo(made, nl=False)
