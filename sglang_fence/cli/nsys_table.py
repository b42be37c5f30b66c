"""The tables of ``sglang-fence nsys``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table

from sglang_fence.analyze.summary import mode_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sglang_fence.analyze.steps import Step
    from sglang_fence.analyze.summary import ModeSummary

STEPS_SHOWN = 40


def summary_table(rows: Sequence[ModeSummary]) -> Table:
    """Return a row a mode."""
    made = Table(title="By mode, times in µs", box=SIMPLE_HEAD)
    made.add_column("mode")
    for name in ("steps", "fine", "coarse", "slack\np50 / p99", "wait\np50 / p99", "lost\nslack"):
        made.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        made.add_row(
            row.mode,
            str(row.steps),
            str(row.fine),
            str(row.coarse),
            f"{_us(row.slack_p50)} / {_us(row.slack_p99)}",
            f"{_us(row.wait_p50)} / {_us(row.wait_p99)}",
            _us(row.lost_slack),
        )
    return made


def step_table(steps: Sequence[Step]) -> Table:
    """Return a row a step, the first of them where there are many."""
    more = len(steps) - STEPS_SHOWN
    made = Table(
        title="By step, times in µs",
        caption=f"and {more} more, in --json" if more > 0 else None,
        box=SIMPLE_HEAD,
    )
    for name in ("step", "mode", "fence"):
        made.add_column(name, no_wrap=True)
    for name in ("slack", "at\nleast", "wait", "lost\nslack"):
        made.add_column(name, justify="right", no_wrap=True)
    for index, step in enumerate(steps[:STEPS_SHOWN]):
        made.add_row(
            f"({index})" if step.number is None else str(step.number),
            mode_of(step),
            f"{step.fence or '–'} {'' if step.ends is None else step.ends.name}".strip(),
            _us(step.slack),
            _us(step.slack_least),
            _us(step.wait),
            _us(step.lost_slack),
        )
    return made


def _us(ns: int | None) -> str:
    return "–" if ns is None else f"{ns / 1000:,.1f}"
