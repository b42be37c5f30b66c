"""``sglang-fence docs``: pages of the documentation that are made from the catalogue."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from sglang_fence.cli.metrics_page import metrics_page


class Page(StrEnum):
    """Pages that can be made."""

    METRICS = "metrics"


_MAKERS = {Page.METRICS: metrics_page}


def docs(page: Annotated[Page, typer.Argument(help="Which page.")]) -> None:
    """Print a page of docs/ that is made from the catalogue: ``sglang-fence docs metrics > docs/metrics.md``."""
    typer.echo(_MAKERS[page](), nl=False)
