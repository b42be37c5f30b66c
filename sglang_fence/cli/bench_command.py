"""``sglang-fence bench``: what the fence gives back, and what observing and checking cost."""

from __future__ import annotations

import json
import platform
import statistics
from enum import StrEnum
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table

from sglang_fence.bench import hot_path, observing, serving
from sglang_fence.bench.blocks import Measured, interleave
from sglang_fence.bench.sink import collector
from sglang_fence.cli.files import check_writable, write
from sglang_fence.cli.run_command import DeviceName
from sglang_fence.device import open_device
from sglang_fence.engine.options import EngineOptions
from sglang_fence.models.loading import EMBEDDED, ModelOptions
from sglang_fence.observe.exporting import GROUP

if TYPE_CHECKING:
    from collections.abc import Callable


class What(StrEnum):
    """What to measure."""

    ALL = "all"
    FENCE = "fence"
    OBSERVE = "observe"
    CHECKER = "checker"


def bench(  # noqa: PLR0913 - a command line has as many options as its users need
    what: Annotated[What, typer.Argument(help="fence: steps/s; observe, checker: what they cost.")] = What.ALL,
    *,
    device: Annotated[DeviceName, typer.Option(help="auto: CUDA where there is one.")] = DeviceName.AUTO,
    model: Annotated[str, typer.Option(help="A directory, a hub name, or the embedded default.")] = EMBEDDED,
    attention: Annotated[str, typer.Option(help="Attention backend.")] = "native",
    requests: Annotated[int, typer.Option(min=1, help="Requests a block.")] = 8,
    new_tokens: Annotated[int, typer.Option(min=2, help="Tokens a request.")] = 200,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of interleaved blocks.")] = 5,
    steps: Annotated[int, typer.Option(min=1, help="Steps of a block of observe or checker.")] = 2000,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write all figures.")] = None,
) -> None:
    """Compare in one run: blocks of each variant in turn, ratios within each round, median and spread."""
    check_writable(json_file)
    options = EngineOptions(model=ModelOptions(model), attention=attention, max_running=requests)
    figures: dict[str, dict[str, Measured]] = {}
    observed: dict[str, observing.Compared] = {}
    console = Console()
    with console.status("measuring"):
        if what in {What.ALL, What.OBSERVE}:
            figures["observe: host ns a step"] = _measure(hot_path.parts(), rounds, "no observer")
            opened = open_device(device.value, check_hazards=False)
            if opened.virtual_seconds() is None:  # virtual time has no host time in it
                with collector() as otlp:
                    loops = observing.blocks(opened, otlp=otlp if has_exporters() else None, steps=steps)
                    observed = observing.compare(loops, rounds=rounds)
        if what in {What.ALL, What.FENCE}:
            opened = open_device(device.value, check_hazards=False)
            blocks = serving.fences(opened, options, requests=requests, new_tokens=new_tokens)
            figures[f"fence: steps/s on {opened.name}"] = _measure(blocks, rounds, "off")
        if what in {What.ALL, What.CHECKER}:
            blocks = serving.checker(options, steps=steps)
            figures[f"checker: processor seconds for {steps} steps"] = _measure(blocks, max(1, rounds // 2), "without")
    for title, rows in figures.items():
        console.print(_table(title, rows))
    if observed:
        console.print(_observed_table(f"observe: a decode loop of 0.25 ms on {_machine()}", observed))
    versions = {"python": platform.python_version(), "torch": torch.__version__, "machine": _machine()}
    console.print(", ".join(f"{name} {value}" for name, value in versions.items()), highlight=False)
    if json_file is not None:
        content = {title: {name: one.to_json() for name, one in rows.items()} for title, rows in figures.items()}
        content |= {"observe: decode loop": {name: one.to_json() for name, one in observed.items()}}
        write(json_file, json.dumps({"versions": versions, "figures": content}, indent=2) + "\n")


def _measure(blocks: dict[str, Callable[[], float]], rounds: int, baseline: str) -> dict[str, Measured]:
    return interleave(blocks, rounds=rounds, baseline=baseline)


def has_exporters() -> bool:
    """Whether the exporters that the benchmark switches on are installed, with what they need."""
    return {"nvtx", "otel"} <= {entry.name for entry in entry_points(group=GROUP)} and _has(
        "opentelemetry.exporter.otlp"
    )


def _has(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # a package above it is missing
        return False


def _observed_table(title: str, rows: dict[str, observing.Compared]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("variant")
    for column in (
        "host µs\na step",
        "more\nmedian",
        "own\naccount",
        "host\np99 µs",
        "step p99\nratio",
        "steps/s\nratio",
    ):
        table.add_column(column, justify="right")
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
            _spread(one.shares("step_p99_us")),
            _spread(one.shares("steps_per_s")),
        )
    return table


def _spread(ratios: list[float]) -> str:
    return f"{statistics.median(ratios):.3f}\n{min(ratios):.3f} … {max(ratios):.3f}"


def _machine() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else f"{platform.machine()} CPU"


def _table(title: str, rows: dict[str, Measured]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("variant")
    for column in ("median", "ratio", "spread of ratios"):
        table.add_column(column, justify="right")
    for name, one in rows.items():
        low, high = one.spread
        table.add_row(name, f"{one.median:,.2f}", f"{one.ratio:.3f}", f"{low:.3f} … {high:.3f}")
    return table
