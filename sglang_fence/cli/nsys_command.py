"""``sglang-fence nsys``: what a capture of Nsight Systems says of the fence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from sglang_fence.analyze.report import analyse
from sglang_fence.analyze.serialising import to_json
from sglang_fence.analyze.strip import strip
from sglang_fence.cli.files import check_apart, check_writable, write
from sglang_fence.cli.nsys_table import step_table, summary_table


def nsys(
    capture: Annotated[Path, typer.Argument(help="A capture: .sqlite, or .nsys-rep.", metavar="FILE")],
    *,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write every step to this file.")] = None,
    strip_file: Annotated[
        Path | None,
        typer.Option("--strip", help="Write a small SQLite copy that may be shared: only what this analysis reads."),
    ] = None,
) -> None:
    """Read each step's slack and wait from a capture, whatever the observer measured.

    Take it with nsys profile --trace=cuda,nvtx --cuda-graph-trace=node. See docs/nsight.md.
    """
    check_apart({"--json": json_file, "--strip": strip_file}, [capture])
    check_writable(json_file)
    report = analyse(capture)
    if strip_file is not None:
        strip(capture, strip_file)
    if json_file is not None:
        write(json_file, json.dumps(to_json(report), indent=1) + "\n")
    console = Console()
    if report.steps:
        console.print(summary_table(report.summary))
        console.print(step_table(report.steps))
    for heading, sentences in (("Inferred", report.inferred), ("Missing", report.missing)):
        for sentence in sentences:
            console.print(f"{heading}: {sentence}", markup=False, highlight=False)
