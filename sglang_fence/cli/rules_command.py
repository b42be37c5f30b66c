"""``sglang-fence rules export``: recording rules and alerts as a file for Prometheus."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sglang_fence.cli.files import folder_for, write
from sglang_fence.mixin.parameters import Parameters
from sglang_fence.mixin.rules import RULES_FILE, rules_yaml

app = typer.Typer(no_args_is_help=True, help="Recording rules and alerts.")

DEFAULTS = Parameters()


@app.callback()
def options() -> None:
    """Recording rules and alerts for Prometheus."""


@app.command()
def export(  # noqa: PLR0913 - as many as the rules have parameters
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to; made if it isn't there.")],
    *,
    window: Annotated[str, typer.Option(help="Of rates; at least four scrapes long.")] = DEFAULTS.window,
    hold: Annotated[str, typer.Option("--for", help="How long before a warning fires.")] = DEFAULTS.hold,
    hold_critical: Annotated[
        str, typer.Option("--for-critical", help="How long before a critical alert fires.")
    ] = DEFAULTS.hold_critical,
    day: Annotated[str, typer.Option(help="How far back fallbacks are compared.")] = DEFAULTS.day,
    interval: Annotated[str, typer.Option(help="Between two evaluations.")] = DEFAULTS.interval,
    grafana_url: Annotated[str, typer.Option(help="Where alerts lead to.")] = DEFAULTS.grafana_url,
    runbooks_url: Annotated[str, typer.Option(help="Where the runbooks are, NAME.md.")] = DEFAULTS.runbooks_url,
    threshold: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A threshold, such as min_steps=50.")
    ] = None,
) -> None:
    """Write the rule file. Durations as in Prometheus: 5m, 1h30m. A wrong name after --set lists all thresholds."""
    parameters = Parameters(
        window=window,
        hold=hold,
        hold_critical=hold_critical,
        day=day,
        interval=interval,
        grafana_url=grafana_url,
        runbooks_url=runbooks_url,
    ).with_thresholds(threshold or ())
    folder_for(folder)
    write(folder / RULES_FILE, rules_yaml(parameters))
    typer.echo(folder / RULES_FILE)
