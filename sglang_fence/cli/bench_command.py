"""``sglang-fence bench``: what the fence gives back, how fast the runtime is, what observing and checking cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from sglang_fence.bench import fencing, hot_path, observing, plot, runtime, serving
from sglang_fence.bench.blocks import interleave
from sglang_fence.bench.machine import describe
from sglang_fence.bench.result_files import to_text
from sglang_fence.bench.sink import collector
from sglang_fence.cli.bench_options import check_plot, has_exporters, make_plan, make_sweep, numbers, sizes
from sglang_fence.cli.bench_tables import fence_table, measured_table, observed_table, runtime_table
from sglang_fence.cli.files import check_writable, write
from sglang_fence.cli.run_command import DeviceName
from sglang_fence.device import open_device
from sglang_fence.engine.options import EngineOptions
from sglang_fence.observe.counting import many

if TYPE_CHECKING:
    from collections.abc import Mapping

app = typer.Typer(help="Compare in one run: blocks of each variant in turn, ratios within each round.")

Device = Annotated[DeviceName, typer.Option("--device", help="auto: CUDA where there is one.")]
Rounds = Annotated[
    int, typer.Option("--rounds", min=1, max=10_000, help="Rounds of interleaved blocks, after one for warm-up.")
]
Steps = Annotated[int, typer.Option("--steps", min=1, max=10_000_000, help="Steps of a block.")]
Json = Annotated[Path | None, typer.Option("--json", help="Write all figures.")]


@app.callback(invoke_without_command=True)
def everything(context: typer.Context) -> None:
    """Compare in one run; without a benchmark's name: all but runtime, with their defaults."""
    if context.invoked_subcommand is None:
        observe()
        fence()
        checker()


@app.command()
def fence(  # noqa: PLR0913 - a command line has as many options as its users need
    *,
    device: Device = DeviceName.AUTO,
    decode_ms: Annotated[str, typer.Option(help="Decode lengths, separated by commas.")] = "0.1,0.25,0.5,1,2,5,10",
    prepare_ms: Annotated[str, typer.Option(help="The host's preparation times likewise.")] = "0,0.1,0.25,0.5",
    schedule_us: Annotated[float, typer.Option(min=0, help="Work on the schedule stream, µs a step.")] = 40.0,
    closer_ms: Annotated[float, typer.Option(min=0, help="Decode length of a closer look; 0: none.")] = 0.25,
    closer_schedule_us: Annotated[str, typer.Option(help="Schedule-stream work there.")] = "10,20,40,80",
    rounds: Rounds = 5,
    block_ms: Annotated[float, typer.Option(min=0.1, max=60_000, help="About how long a block lasts.")] = 50.0,
    json_file: Json = None,
    plot_file: Annotated[
        Path | None, typer.Option("--plot", help="Draw what the fine fence gives back, as SVG.")
    ] = None,
) -> None:
    """Steps/s of a decode loop with the fence off (unsafe), coarse and fine, beside what an ideal fence could reach."""
    check_plot(plot_file)
    check_writable(json_file, plot_file)
    sweep = make_sweep(
        decode_ms=numbers("--decode-ms", decode_ms),
        prepare_ms=numbers("--prepare-ms", prepare_ms),
        schedule_us=schedule_us,
        closer_ms=closer_ms,
        closer_schedule_us=numbers("--closer-schedule-us", closer_schedule_us),
        rounds=rounds,
        block_ms=block_ms,
    )
    opened, console = open_device(device.value, check_hazards=False), Console()
    with console.status("measuring") as status:
        result = fencing.measure(opened, sweep, status.update)
    if json_file is not None:
        write(json_file, to_text("fence", result.to_json()))
    if plot_file is not None:
        write(plot_file, plot.svg(result))
    console.print(fence_table(result))
    _print_machine(console, result.machine)


@app.command("runtime")
def bench_runtime(
    *,
    device: Device = DeviceName.AUTO,
    hidden_size: Annotated[
        int | None, typer.Option(max=65_536, help="Of a random Llama; CUDA: 1024, else 128.")
    ] = None,
    layers: Annotated[int | None, typer.Option(max=1_000, help="Likewise; CUDA: 8, else 2.")] = None,
    attention: Annotated[str, typer.Option(help="Attention backend of the runtime.")] = "native",
    batches: Annotated[str | None, typer.Option(help="Batch sizes; CUDA: 1,8,32, else 1,2.")] = None,
    new_tokens: Annotated[int | None, typer.Option(help="Tokens a request; CUDA: 128, else 12.")] = None,
    rounds: Rounds = 5,
    json_file: Json = None,
) -> None:
    """Decode of this runtime, of its plain loop, and of Transformers' generate with a static cache, not compiled.

    Tokens are compared first. Exit status 1: they differ by more than a tie.
    """
    check_writable(json_file)
    opened, console = open_device(device.value, check_hazards=False), Console()
    plan = make_plan(
        cuda=opened.virtual_seconds() is None,
        hidden_size=hidden_size,
        layers=layers,
        attention=attention,
        batches=None if batches is None else sizes("--batches", batches),
        new_tokens=new_tokens,
        rounds=rounds,
    )
    with console.status("measuring") as status:
        result = runtime.measure(opened, plan, status.update)
    if json_file is not None:
        write(json_file, to_text("runtime", result.to_json()))
    console.print(runtime_table(result))
    for check in result.checks:
        console.print(
            f"{check.dtype}: {check.equal} of {check.tokens} tokens are generate's up to a first that differs; the "
            f"worst falls short of the best by {check.shortfall:.2g} standard deviations (generate's own: "
            f"{check.own_shortfall:.2g}; allowed: {check.tolerance:g})",
            highlight=False,
        )
    _print_machine(console, result.machine)
    if not all(check.passed for check in result.checks):
        console.print("the tokens differ by more than a tie: the speeds above are of two different computations")
        raise typer.Exit(1)


@app.command()
def observe(
    *,
    device: Device = DeviceName.AUTO,
    rounds: Rounds = 5,
    steps: Steps = 2000,
    json_file: Json = None,
) -> None:
    """What observing costs: host time part by part and, on CUDA, a decode loop with more and more switched on."""
    check_writable(json_file)
    opened, console = open_device(device.value, check_hazards=False), Console()
    observed: dict[str, observing.Compared] = {}
    with console.status("measuring"):
        parts = interleave(hot_path.parts(), rounds=rounds, baseline="no observer")
        if opened.virtual_seconds() is None:  # virtual time has no host time in it
            with (
                collector() as otlp,
                observing.blocks(opened, otlp=otlp if has_exporters() else None, steps=steps) as loops,
            ):
                observed = observing.compare(loops, rounds=rounds)
    machine = describe(opened)
    if json_file is not None:
        content = {
            "machine": machine,
            "host_ns": {name: one.to_json() for name, one in parts.items()},
            "decode_loop": {name: one.to_json() for name, one in observed.items()},
        }
        write(json_file, to_text("observe", content))
    console.print(measured_table("observe: host ns a step", parts))
    if observed:
        console.print(observed_table(f"observe: a decode loop of 0.25 ms on {machine['gpu']}", observed))
    _print_machine(console, machine)


@app.command()
def checker(*, rounds: Rounds = 2, steps: Steps = 2000, json_file: Json = None) -> None:
    """What the hazard checker costs on the simulated device, in processor seconds."""
    check_writable(json_file)
    opened, console = open_device(DeviceName.SIMULATED.value, check_hazards=False), Console()
    with console.status("measuring"):
        blocks = serving.checker(EngineOptions(max_running=8), steps=steps)
        figures = interleave(blocks, rounds=rounds, baseline="without")
    machine = describe(opened)
    if json_file is not None:
        content = {"machine": machine, "seconds": {name: one.to_json() for name, one in figures.items()}}
        write(json_file, to_text("checker", content))
    console.print(measured_table(f"checker: processor seconds for {many(steps, 'step')}", figures))
    _print_machine(console, machine)


def _print_machine(console: Console, machine: Mapping[str, str]) -> None:
    console.print(", ".join(f"{name} {value}" for name, value in machine.items()), highlight=False)
