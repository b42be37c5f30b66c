"""A progress bar while requests are served."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from sglang_fence.engine.requests import Request


@contextmanager
def serving(total: int) -> Generator[Callable[[Request], None]]:
    """Show progress on stderr, where that is a terminal; yields what to call with each finished request."""
    columns = (TextColumn("serving"), BarColumn(), MofNCompleteColumn(), TextColumn("requests"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("serving", total=total)
        yield lambda _: progress.advance(task)
