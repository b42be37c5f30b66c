"""The typer application, and how errors leave it."""

from __future__ import annotations

import errno
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
from sglang_fence.cli.output import checked_output, flush_output, give_up_output, say_all_that_can_be_said
from sglang_fence.errors import UserError

_SHOWN = 40
"""Letters of a file's name that is too long."""

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


def run_app() -> int:
    """Run the command line and return its exit status; what it says on standard output has been written then."""
    say_all_that_can_be_said()
    try:
        status = _status()
        flush_output()
    except BrokenPipeError:
        return give_up_output()
    except UserError as error:
        line = " ".join(str(error).split())
        typer.echo(f"sglang-fence: {line}", err=True)
        return 2
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:  # wherever it was given: every command takes files
            return _fault()
        typer.echo(f"sglang-fence: {str(error.filename)[:_SHOWN]}… can't be a file ({error.strerror})", err=True)
        return 2
    except Exception:  # noqa: BLE001 - a fault of ours; status 1 already means that hazards were found
        return _fault()
    return status


def _fault() -> int:
    traceback.print_exc()
    typer.echo("sglang-fence: a fault of sglang-fence itself; please report it with the lines above", err=True)
    return 3


def _status() -> int:
    try:
        with checked_output():
            app()
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):  # rich and typer end with 1 then
            raise ended.__context__ from None
        return ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    return 0
