"""``sglang-fence report``: one page of a run, to be opened in any browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sglang_fence.cli.files import check_apart, check_writable, write
from sglang_fence.errors import ConfigError


def report(
    run: Annotated[
        Path, typer.Argument(help="What run --record wrote, a capture, or what nsys --json wrote.", metavar="RUN")
    ],
    *,
    out: Annotated[Path | None, typer.Option(help="The page; RUN with .html in place of its suffix.")] = None,
    against: Annotated[Path | None, typer.Option(help="A second run, to be shown beside the first.")] = None,
    timeline_svg: Annotated[
        Path | None, typer.Option(help="Write the timeline of one step as a picture, and no page.")
    ] = None,
    step: Annotated[int | None, typer.Option(help="Which step --timeline-svg draws; the typical one.")] = None,
) -> None:
    """Make one self-contained HTML page of a run: what the fence did, its slack and wait, and single steps drawn.

    The page needs no network and no script. See docs/report.md.
    """
    from sglang_fence.cli.report.page import page, svg  # noqa: PLC0415 - other commands need no templates
    from sglang_fence.cli.report.sources import read_facts  # noqa: PLC0415 - as above

    if step is not None and timeline_svg is None:
        msg = f"--step {step}: only --timeline-svg draws one step; add it, or leave --step out"
        raise ConfigError(msg)
    sources = [run] if against is None else [run, against]
    for source in sources:
        if source.is_dir():
            msg = f"{source} is a folder: name a record (run --record FILE), a capture, or what nsys --json wrote"
            raise ConfigError(msg)
    target = timeline_svg or out or run.with_suffix(".html")
    check_apart({"--out" if timeline_svg is None else "--timeline-svg": target}, sources)
    check_writable(target)
    facts = read_facts(run)
    if timeline_svg is not None:
        drawn = svg(facts, step)
        if drawn is None:
            wanted = "no step" if step is None else f"no step {step}"
            msg = f"{run} shows {wanted} that could be drawn: see sglang-fence report {run} for those it shows"
            raise ConfigError(msg)
        write(timeline_svg, drawn[0])
    else:
        write(target, page(facts, None if against is None else read_facts(against)))
    typer.echo(target)
