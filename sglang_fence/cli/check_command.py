"""``sglang-fence check``: what a stream program turns out to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from sglang_fence.device.simulated.program import Verdict, check_files


def check(
    programs: Annotated[list[Path], typer.Argument(help="Stream programs, JSON.", metavar="PROGRAM.json…")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a program and line.")] = False,
) -> None:
    """Say which accesses of a stream program nothing orders, and how its waits turned out.

    Exit status: 0 without races, 1 with, 2 for a file that isn't a program.
    """
    verdicts = check_files(programs)
    for path, verdict in verdicts:
        typer.echo(json.dumps(verdict.to_json()) if as_json else describe(path, verdict))
    raise typer.Exit(1 if any(verdict.races for _, verdict in verdicts) else 0)


def describe(path: Path, verdict: Verdict) -> str:
    """Return the verdict in words."""
    count = len(verdict.races)
    lines = [f"{path}: {'no race' if not count else f'{count} race' + 's' * (count > 1)}"]
    for race in verdict.races:
        lines.append(f"  {race.kind} on {race.buffer} rows {list(race.rows)}: {race.first}, then {race.second}")
        lines.append(f"      missing: {race.missing}")
    lines += [
        f"  wait at host[{index}]: its event was never recorded, so it holds nothing" for index in verdict.noop_waits
    ]
    lines += [f"  wait at host[{index}]: slack {slack:g} µs" for index, slack in verdict.slack_us.items()]
    return "\n".join(lines)
