"""``sglang-fence audit``: are declared read ends sound, and could they be earlier?"""

from __future__ import annotations

import importlib
import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from sglang_fence.audit.auditing import AuditOptions
from sglang_fence.audit.cases import CANDIDATES, select
from sglang_fence.audit.interruption import Interruption
from sglang_fence.audit.matrix import audit_all
from sglang_fence.cli.audit_table import print_report, print_summary
from sglang_fence.cli.files import check_apart, check_writable, write
from sglang_fence.cli.given import refuse_others
from sglang_fence.cli.progress import auditing
from sglang_fence.cli.run_command import DeviceName
from sglang_fence.device import open_device
from sglang_fence.errors import ConfigError
from sglang_fence.models.loading import EMBEDDED

if TYPE_CHECKING:
    from sglang_fence.audit.matrix import CaseReport
    from sglang_fence.contract import SharedReadEnds

_INTERRUPTED = 130

_STATIC = frozenset({"static", "json_file"})
_SGLANG = frozenset({"sglang", "model", "repeats", "json_file"})
"""Parameters that these two look at."""


class CandidateName(StrEnum):
    """``--candidates``."""

    PRE = "pre"
    IN = "in"
    POST = "post"


_ENDS = dict(zip(CandidateName, CANDIDATES, strict=True))


def audit(  # noqa: PLR0913 - a command line has as many options as its users need
    context: typer.Context,
    *,
    device: Annotated[DeviceName, typer.Option(help="auto: CUDA where there is one.")] = DeviceName.AUTO,
    model: Annotated[str, typer.Option(help="A directory, a hub name, or the embedded default.")] = EMBEDDED,
    attention: Annotated[list[str] | None, typer.Option(help="Attention backend, or all; may be repeated.")] = None,
    speculative: Annotated[list[str] | None, typer.Option(help="Algorithm, none, or all; may be repeated.")] = None,
    graph: Annotated[list[str] | None, typer.Option(help="full, breakable, off, or all; may be repeated.")] = None,
    candidates: Annotated[
        list[CandidateName] | None, typer.Option(help="End to try, all if left out; may be repeated.")
    ] = None,
    repeats: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Fewest runs with fresh data for each end and buffer: 20; in virtual time 3.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the audit's own requests.")] = 0,
    jobs: Annotated[int, typer.Option(min=1, help="Cases to audit at once, each in a process of its own.")] = 1,
    costs: Annotated[bool, typer.Option(help="Time what an earlier end would be worth, where one is sound.")] = True,
    static: Annotated[
        str | None, typer.Option(help="Read a source tree or an installed package instead; nothing is run.")
    ] = None,
    sglang: Annotated[
        bool, typer.Option("--sglang", help="Audit the decode graphs of the SGLang that is installed instead.")
    ] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write every verdict to this file.")] = None,
) -> None:
    """Overwrite each shared buffer at the moment of each read end, and see what changes; beside it, the exact answer.

    Exit status: 0, 1 if a declared end is unsound or a planted late reader was missed, 2 for a mistake in what was
    given, 130 if it was interrupted.
    """
    if static is not None:
        refuse_others(context, _STATIC, f"--static {static}: a source is read, and nothing is run")
    if sglang:
        refuse_others(context, _SGLANG, "--sglang: SGLang's own engine is audited, as it is configured")
    if static is not None and not static.strip():
        msg = "--static '': name a source tree, a file, or an installed package"
        raise ConfigError(msg)
    check_apart({"--json": json_file}, [] if static is None else [Path(static)])
    check_writable(json_file)
    if static is not None:
        run_static = importlib.import_module("sglang_fence.cli.audit_static").run_static
        raise typer.Exit(run_static(static, json_file))
    if sglang:
        run_sglang = importlib.import_module("sglang_fence.sglang_plugin.audit.command").run_sglang
        raise typer.Exit(run_sglang(model, repeats, json_file))
    cases = select(attention or ["native"], speculative or ["none"], graph or ["full"])
    opened = open_device(device.value)
    options = AuditOptions(
        model=model,
        candidates=_candidates(candidates),
        repeats=repeats,
        seed=seed,
        costs=costs,
    )
    console = Console()
    reports: list[CaseReport] = []
    with Interruption() as interrupted, auditing(len(cases)) as progress:
        for report in audit_all(
            cases, opened.name, options, jobs=jobs, stop=lambda: progress.another_run() or interrupted()
        ):
            reports.append(report)
            progress.another_case(str(report.case))
    done = {report.case for report in reports}
    left = [case for case in cases if case not in done]
    if json_file is not None:
        content = {
            "device": opened.name,
            "cases": [report.to_json() for report in reports],
            "not_done": [case.to_json() for case in left],
        }
        write(json_file, json.dumps(content, indent=1) + "\n")
    for report in reports:
        print_report(console, report, briefly=len(reports) > 1)
    print_summary(console, reports, left)
    if interrupted():
        raise typer.Exit(_INTERRUPTED)
    raise typer.Exit(1 if any(report.unsound or report.missed for report in reports) else 0)


def _candidates(asked: list[CandidateName] | None) -> list[SharedReadEnds]:
    if not asked:
        return list(CANDIDATES)
    if len(set(asked)) < len(asked):
        msg = f"--candidates {' '.join(asked)}: one is named twice; give each once"
        raise ConfigError(msg)
    return sorted(_ENDS[name] for name in asked)
