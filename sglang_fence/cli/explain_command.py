"""``sglang-fence explain``: what dumps of the flight recorder say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from sglang_fence.cli.files import check_apart, check_writable, write
from sglang_fence.observe.counting import many, noun
from sglang_fence.observe.flight.comparing import compare
from sglang_fence.observe.flight.explaining import stand
from sglang_fence.observe.flight.form import read
from sglang_fence.observe.flight.wording import paragraph, to_json


def explain(
    dumps: Annotated[list[Path], typer.Argument(help="Dumps of the flight recorder, of one or many ranks.")],
    *,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write all of it to this file.")] = None,
) -> None:
    """Say who waits for which record of which step, what was completed last, and which rank is behind.

    See docs/flight-recorder.md.
    """
    check_apart({"--json": json_file}, dumps)
    check_writable(json_file)
    comparison = compare([stand(read(path), str(path)) for path in dumps])
    if json_file is not None:
        write(json_file, json.dumps(to_json(comparison), indent=1) + "\n")
    for standing in comparison.standings:
        heading, *lines = paragraph(standing)
        typer.echo(heading)
        for line in lines:
            typer.echo(f"  {line}")
    if len(comparison.standings) > 1:
        typer.echo(f"behind: {': '.join(filter(None, (', '.join(comparison.behind), comparison.why)))}")
    for line in comparison.unknown:
        typer.echo(f"can't be known: {line}")
    if comparison.left_out:
        processes = noun(comparison.left_out, "a process that has", "processes that have")
        typer.echo(f"left out: {many(comparison.left_out, 'dump')} of {processes} a newer one here")
