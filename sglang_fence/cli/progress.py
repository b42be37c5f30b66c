"""Progress bars: while requests are served, and while cases are audited."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from sglang_fence.engine.requests import Request


def _on_stderr(*columns: ProgressColumn) -> Progress:
    console = Console(stderr=True)
    # Left on, it would write an empty line at its end where nobody watches.
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


@contextmanager
def serving(total: int) -> Generator[Callable[[Request], None]]:
    """Show progress on stderr, where that is a terminal; yields what to call with each finished request."""
    columns = (TextColumn("serving"), BarColumn(), MofNCompleteColumn(), TextColumn("requests"), TimeElapsedColumn())
    with _on_stderr(*columns) as progress:
        task = progress.add_task("serving", total=total)
        yield lambda _: progress.advance(task)


class Auditing:
    """What is known of an audit under way."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._cases = progress.add_task("auditing", total=total, runs=0)
        self._runs = 0

    def another_run(self) -> bool:
        """Count a run; false, so that it fits where somebody is asked whether to stop."""
        self._runs += 1
        self._progress.update(self._cases, runs=self._runs)
        return False

    def another_case(self, name: str) -> None:
        """Count a case that is done."""
        self._progress.update(self._cases, advance=1, description=f"audited {name}")


@contextmanager
def auditing(total: int) -> Generator[Auditing]:
    """Show progress on stderr, where that is a terminal."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("cases, {task.fields[runs]} runs"),
        TimeElapsedColumn(),
    )
    with _on_stderr(*columns) as progress:
        yield Auditing(progress, total)
