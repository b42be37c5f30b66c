"""The table of ``sglang-fence top``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sglang_fence.cli.top.standing import Standing

REASONS_SHOWN = 3
_MILLI, _MICRO = 1e-3, 1e-6


def table(rows: Sequence[Standing]) -> Table:
    """Return a row a server."""
    made = Table(caption="Sums over a server's ranks. Percentiles are as fine as their bucket, which doubles.")
    made.add_column("server", overflow="fold")
    for name in ("steps/s", "fine", "slack\np50 / p99", "wait\np50 / p99", "lost s/s"):
        made.add_column(name, justify="right", no_wrap=True)
    made.add_column("barrier")
    made.add_column("coarse, by reason", overflow="fold")
    for row in rows:
        made.add_row(*_cells(row))
    return made


def _cells(row: Standing) -> tuple[str, ...]:
    name = escape(row.url.removeprefix("http://").removesuffix("/metrics"))
    if row.error is not None:
        return (name, "–", "–", "–", "–", "–", "–", f"[red]down: {escape(row.error)}[/red]")
    return (
        name,
        # Without a rate there is at least the total.
        f"{row.steps_per_s:,.1f}" if row.steps_per_s is not None else f"({row.steps:,.0f})",
        "–" if row.fine_share is None else f"{row.fine_share:.1%}",
        f"{_time(row.slack_p50_s)} / {_time(row.slack_p99_s)}",
        f"{_time(row.wait_p50_s)} / {_time(row.wait_p99_s)}",
        f"{row.lost_s_per_s:.4f}" if row.lost_s_per_s is not None else f"({row.lost_s:,.3f})",
        row.barrier or "–",
        _reasons(row),
    )


def _reasons(row: Standing) -> str:
    listed = list(row.coarse.items())
    texts = [
        f"{escape(reason)} {f'{count / row.over_s:,.1f}/s' if row.over_s else f'({count:,.0f})'}"
        for reason, count in listed[:REASONS_SHOWN]
    ]
    if len(listed) > REASONS_SHOWN:
        texts.append(f"{len(listed) - REASONS_SHOWN} more")
    return ", ".join(texts) or "–"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds / _MILLI:.2f} ms" if seconds >= _MILLI else f"{seconds / _MICRO:.1f} µs"
