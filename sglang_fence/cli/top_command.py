"""``sglang-fence top``: how many servers stand, live, from their ``/metrics``."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from math import isfinite
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.live import Live

from sglang_fence.cli.top.page import Page, UnreachableError, fetch, metrics_url
from sglang_fence.cli.top.standing import Standing, standing
from sglang_fence.cli.top.table import table
from sglang_fence.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_AT_ONCE = 16
"""Servers that are fetched at the same time."""

Rows = list[Standing]


def top(
    urls: Annotated[list[str], typer.Argument(help="Metrics of a runtime or of SGLang.", metavar="URL…")],
    *,
    interval: Annotated[float, typer.Option(min=0.1, max=3600, help="Seconds between two looks.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Look once: totals since each server's start.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object a server, line by line.")] = False,
) -> None:
    """Show steps/s, fine share, fallbacks, slack, wait and lost time of one or many servers, until Ctrl-C.

    Rates and percentiles are those between two looks; at first, and with --once, totals stand in parentheses. A server
    that can't be reached is a row that says so.
    """
    if not isfinite(interval):
        msg = f"--interval {interval} is no time: give seconds"
        raise ConfigError(msg)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        looks = _looks([metrics_url(url) for url in urls], pool)
        try:
            if once:
                _printer(Console(), as_json=as_json)(next(looks))
            else:
                _watch(looks, interval, as_json=as_json)
        except KeyboardInterrupt:
            return


def _watch(looks: Iterator[Rows], interval: float, *, as_json: bool) -> None:
    console = Console()
    if as_json or not console.is_terminal:
        show = _printer(console, as_json=as_json)
        for rows in looks:
            show(rows)
            time.sleep(interval)
    with Live(console=console, auto_refresh=False) as live:
        for rows in looks:
            live.update(table(rows), refresh=True)
            time.sleep(interval)


def _printer(console: Console, *, as_json: bool) -> Callable[[Rows], None]:
    def show(rows: Rows) -> None:
        if as_json:
            for row in rows:
                typer.echo(json.dumps(row.to_json()))
        else:
            console.print(table(rows))

    return show


def _looks(urls: Sequence[str], pool: ThreadPoolExecutor) -> Iterator[Rows]:
    """Yield rows for ever: one look at all servers for each that is asked for."""
    before: list[Page | None] = [None] * len(urls)
    while True:
        rows: Rows = []
        for index, (url, found) in enumerate(zip(urls, pool.map(_try_fetch, urls), strict=True)):
            if isinstance(found, Page):
                rows.append(standing(url, found, before[index]))
                before[index] = found
            else:
                rows.append(Standing(url=url, error=str(found)))
                before[index] = None
        yield rows


def _try_fetch(url: str) -> Page | UnreachableError:
    try:
        return fetch(url)
    except UnreachableError as error:
        return error
