"""``sglang-fence dashboards export``: the Grafana dashboards as files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sglang_fence.cli.files import folder_for, write
from sglang_fence.mixin.packaged import dashboards

app = typer.Typer(no_args_is_help=True, help="Grafana dashboards.")


@app.callback()
def options() -> None:
    """Grafana dashboards, ready to import or to provision."""


@app.command()
def export(folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to; made if it isn't there.")]) -> None:
    """Write the dashboards' JSON. Each asks for its data source; what it shows is chosen in Grafana."""
    folder_for(folder)
    for name, text in dashboards().items():
        write(folder / name, text)
        typer.echo(folder / name)
