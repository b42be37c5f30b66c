"""``sglang-fence audit``: whether declared read ends are sound."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sglang_fence.cli.audit_static import run_static


def audit(
    *,
    static: Annotated[
        str,
        typer.Option("--static", metavar="PATH|PACKAGE", help="Audit source by reading it; nothing is imported."),
    ],
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the report to this file.")] = None,
) -> None:
    """Say where an attention backend's declaration of its shared reads can't be sound. Exit status 1 if one can't."""
    raise typer.Exit(run_static(static, json_file))
