"""``sglang-fence report``: one page of a run, to be opened in any browser."""

from __future__ import annotations

import json
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
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the comparison and the steps that are shown, as JSON.")
    ] = None,
    timeline_svg: Annotated[
        Path | None, typer.Option(help="Write the timeline of one step as a picture, and no page.")
    ] = None,
    step: Annotated[int | None, typer.Option(help="Which step --timeline-svg draws; the typical one.")] = None,
) -> None:
    """Make one self-contained HTML page of a run: what the fence did, its slack and wait, and single steps drawn.

    The page needs no network and no script. See docs/report.md.
    """
    from sglang_fence.cli.report.page import page  # noqa: PLC0415 - other commands need no templates
    from sglang_fence.cli.report.serialising import to_json  # noqa: PLC0415 - as above
    from sglang_fence.cli.report.sources import read_facts  # noqa: PLC0415 - as above

    _check_options(out=out, against=against, json_file=json_file, timeline_svg=timeline_svg, step=step)
    sources = [run] if against is None else [run, against]
    for source in sources:
        if source.is_dir():
            msg = f"{source} is a folder: name a record (run --record FILE), a capture, or what nsys --json wrote"
            raise ConfigError(msg)
    if timeline_svg is not None:
        _draw(run, timeline_svg, step)
        return
    target = out or run.with_suffix(".html")
    check_apart({"--out": target, "--json": json_file}, sources)
    check_writable(target, json_file)
    facts = read_facts(run)
    other = None if against is None else read_facts(against)
    write(target, page(facts, other))
    typer.echo(target)
    if json_file is not None:
        write(json_file, json.dumps(to_json(facts, other), indent=1) + "\n")
        typer.echo(json_file)


def _check_options(
    *, out: Path | None, against: Path | None, json_file: Path | None, timeline_svg: Path | None, step: int | None
) -> None:
    if step is not None and timeline_svg is None:
        msg = f"--step {step}: only --timeline-svg draws one step; add it, or leave --step out"
        raise ConfigError(msg)
    given = {"--out": out, "--against": against, "--json": json_file}
    unused = [f"{option} {value}" for option, value in given.items() if value is not None]
    if timeline_svg is not None and unused:
        msg = f"--timeline-svg {timeline_svg} {unused[0]}: it draws one step of RUN and makes no page; leave one out"
        raise ConfigError(msg)


def _draw(run: Path, target: Path, step: int | None) -> None:
    from sglang_fence.cli.report.page import svg  # noqa: PLC0415 - other commands need no templates
    from sglang_fence.cli.report.sources import read_facts  # noqa: PLC0415 - as above

    check_apart({"--timeline-svg": target}, [run])
    check_writable(target)
    drawn = svg(read_facts(run), step)
    if drawn is None:
        wanted = "no step" if step is None else f"no step {step}"
        msg = f"{run} shows {wanted} that could be drawn: see sglang-fence report {run} for those it shows"
        raise ConfigError(msg)
    write(target, drawn[0])
    typer.echo(target)
