"""The typer application, and how errors leave it."""

from __future__ import annotations

import sys
import traceback
from typing import Annotated

import typer

from sglang_fence import __version__
from sglang_fence.cli import (
    audit_command,
    bench_command,
    check_command,
    dashboards_command,
    declarations_command,
    demo_command,
    docs_command,
    doctor_command,
    explain_command,
    nsys_command,
    report_command,
    rules_command,
    run_command,
    top_command,
)
from sglang_fence.errors import UserError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="The shared-read fence of an overlap-scheduled LLM runtime, observed in every step.",
)
app.command("run")(run_command.run)
app.command("check")(check_command.check)
app.command("audit")(audit_command.audit)
app.command("declarations")(declarations_command.show)
app.command("audit")(audit_command.audit)
app.command("top")(top_command.top)
app.command("doctor")(doctor_command.doctor)
app.command("nsys")(nsys_command.nsys)
app.command("report")(report_command.report)
app.command("explain")(explain_command.explain)
app.command("demo")(demo_command.demo)
app.add_typer(bench_command.app, name="bench")
app.add_typer(dashboards_command.app, name="dashboards")
app.add_typer(rules_command.app, name="rules")
app.command("docs", hidden=True)(docs_command.docs)


def _version(asked: bool) -> None:  # noqa: FBT001 - typer's callback signature
    if asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def options(
    *,
    _version_asked: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Options of the program itself."""


def main() -> None:
    """Run the command line; a user's mistake is one line on stderr and exit status 2, a fault of ours is status 3."""
    try:
        app()
    except UserError as error:
        line = " ".join(str(error).split())
        typer.echo(f"sglang-fence: {line}", err=True)
        sys.exit(2)
    except Exception:  # noqa: BLE001 - a fault of ours; status 1 already means that hazards were found
        traceback.print_exc()
        typer.echo("sglang-fence: a fault of sglang-fence itself; please report it with the lines above", err=True)
        sys.exit(3)
