"""What the benchmarks print: tables for a terminal."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table

from sglang_fence.bench.fence_result import AGAIN, BASELINE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sglang_fence.bench import observing
    from sglang_fence.bench.blocks import Measured
    from sglang_fence.bench.fence_result import FenceResult
    from sglang_fence.bench.runtime_result import RuntimeResult


def spread(one: Measured, digits: int = 3) -> str:
    """Return a ratio with its range: ``0.991 (0.989 … 0.993)``."""
    low, high = one.spread
    return f"{one.ratio:.{digits}f} ({low:.{digits}f} … {high:.{digits}f})"


def measured_table(title: str, rows: Mapping[str, Measured]) -> Table:
    """Medians, and ratios with their spread."""
    table = _table(title, "variant", "median", "ratio", "spread of ratios")
    for name, one in rows.items():
        low, high = one.spread
        table.add_row(name, f"{one.median:,.2f}", f"{one.ratio:.3f}", f"{low:.3f} … {high:.3f}")
    return table


def fence_table(result: FenceResult) -> Table:
    """One row a shape of the step."""
    names = [name for name in result.cells[0].variants if name not in {BASELINE, AGAIN}]
    title = f"fence: steps/s on {result.machine.get('gpu', result.machine['device'])}; ratios to the fence off"
    shape = "decode ms, host ms,\nschedule µs"
    table = _table(title, shape, "ideal\nsteps/s", "off\nsteps/s", *(name.replace(" ", "\n") for name in names), "gain")
    for cell in result.cells:
        table.add_row(
            f"{cell.shape.forward_us / 1e3:g}, {cell.shape.prepare_us / 1e3:g}, {cell.shape.schedule_us:g}",
            f"{cell.ideal_steps_per_s:,.0f}",
            f"{cell.variants[BASELINE].median:,.0f}",
            *(f"{cell.variants[name].ratio:.3f}" for name in names),
            f"{cell.against('fine IN', 'coarse').ratio:.3f}",
        )
    low, high = result.noise
    table.caption = f"gain: fine IN over coarse; noise: off again over off {low:.3f} … {high:.3f}"
    table.caption_justify = "left"
    return table


def runtime_table(result: RuntimeResult) -> Table:
    """One row a batch and variant."""
    title = f"runtime: on {result.machine.get('gpu', 'the simulated device, the simulation included')}"
    table = _table(title, "batch", "variant", "µs a\nstep", "of generate's", "tokens/s", "of generate's")
    for batch in result.batches:
        for name, one in batch.step_us.items():
            whole = batch.tokens_per_s[name]
            figures = (f"{one.median:,.0f}", spread(one), f"{whole.median:,.0f}", spread(whole, 2))
            table.add_row(str(batch.batch), name, *figures)
    return table


def observed_table(title: str, rows: Mapping[str, observing.Compared]) -> Table:
    """What observing costs a decode loop."""
    columns = ("host µs\na step", "more\nmedian", "own\naccount", "host\np99 µs", "step p99\nratio", "steps/s\nratio")
    table = _table(title, "variant", *columns)
    for name, one in rows.items():
        host, p99, own = (
            statistics.median(getattr(block, figure) for block in one.blocks)
            for figure in ("host_us", "host_p99_us", "own_us")
        )
        table.add_row(
            name,
            f"{host:.1f}",
            f"{statistics.median(one.more('host_us')):+.1f}",
            f"{own:.1f}",
            f"{p99:.1f}",
            _two_lines(one.shares("step_p99_us")),
            _two_lines(one.shares("steps_per_s")),
        )
    return table


def _two_lines(ratios: list[float]) -> str:
    return f"{statistics.median(ratios):.3f}\n{min(ratios):.3f} … {max(ratios):.3f}"


def _table(title: str, first: str, *others: str) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    table.add_column(first)
    for column in others:
        table.add_column(column, justify="right")
    return table
