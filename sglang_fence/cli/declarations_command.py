"""``sglang-fence declarations``: where each attention backend says that its shared reads end."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from sglang_fence.attention.declarations import Declaration, declarations
from sglang_fence.device import open_device


def show(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of JSON objects.")] = False,
) -> None:
    """Say where each backend's reads of shared buffers end in each mode, and why where that isn't the base's answer.

    UNKNOWN makes a step coarse. A wrapper answers for those of its children that read.
    """
    rows = declarations(open_device("simulated"))
    if as_json:
        typer.echo(json.dumps([row.to_json() for row in rows], indent=2))
    else:
        Console().print(_table(rows))


def _table(rows: list[Declaration]) -> Table:
    table = Table()
    table.add_column("backend", overflow="fold")  # a name that is cut short can't be given to --attention
    for column in ("mode", "declared", "why it differs from the base"):
        table.add_column(column)
    for number, row in enumerate(rows):
        first = number == 0 or rows[number - 1].backend != row.backend
        last = number + 1 == len(rows) or rows[number + 1].backend != row.backend
        table.add_row(row.backend if first else "", row.mode, row.declared, row.deviation or "", end_section=last)
    return table
