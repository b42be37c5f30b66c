"""``sglang-fence run``: serve prompts, and say of each step what the fence did."""

from __future__ import annotations

import json
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from sglang_fence.cli.files import check_apart, check_writable, write
from sglang_fence.cli.observing import ObserveOptions, observing
from sglang_fence.cli.outcome import Outcome
from sglang_fence.cli.progress import serving
from sglang_fence.cli.run_report import print_report
from sglang_fence.device import open_device
from sglang_fence.engine.engine import Engine
from sglang_fence.engine.options import DRAFT_TOKENS, EngineOptions
from sglang_fence.engine.prompts import (
    MAX_SEED,
    MAX_TEMPERATURE,
    MIN_TOP_P,
    PromptLine,
    built_in,
    read_prompts,
    take,
    to_request,
)
from sglang_fence.engine.requests import Request, SamplingParams
from sglang_fence.environ import Switches
from sglang_fence.errors import ConfigError, PromptError
from sglang_fence.models.loading import EMBEDDED, ModelOptions
from sglang_fence.observe.flight.recorder import recording
from sglang_fence.observe.run_record import SCHEMA

BUILT_IN_REQUESTS = 32


class DeviceName(StrEnum):
    """``--device``."""

    AUTO = "auto"
    CUDA = "cuda"
    SIMULATED = "simulated"


class FenceName(StrEnum):
    """``--fence``."""

    FINE = "fine"
    COARSE = "coarse"
    OFF = "off"


class GraphName(StrEnum):
    """``--graph``."""

    FULL = "full"
    BREAKABLE = "breakable"
    OFF = "off"


class DTypeName(StrEnum):
    """``--dtype``."""

    AUTO = "auto"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


def run(  # noqa: PLR0913 - a command line has as many options as its users need
    *,
    device: Annotated[DeviceName, typer.Option(help="auto: CUDA where there is one.")] = DeviceName.AUTO,
    model: Annotated[str, typer.Option(help="A directory, a hub name, or the embedded default.")] = EMBEDDED,
    dtype: Annotated[
        DTypeName, typer.Option(help="auto: float32 on the CPU, the checkpoint's on CUDA.")
    ] = DTypeName.AUTO,
    prompts: Annotated[
        Path | None, typer.Option(help="Text, one prompt a line, or JSONL; built-in if left out.")
    ] = None,
    requests: Annotated[
        int | None, typer.Option(min=1, max=1_000_000, help="How many prompts to serve; repeats a shorter file.")
    ] = None,
    max_new_tokens: Annotated[int, typer.Option(help="Tokens to generate for each prompt.")] = 32,
    temperature: Annotated[float, typer.Option(help="0: greedy.")] = 0.0,
    top_p: Annotated[float, typer.Option(help="Nucleus to sample from.")] = 1.0,
    stop: Annotated[list[str] | None, typer.Option(help="A text that ends an output; may be repeated.")] = None,
    attention: Annotated[str, typer.Option(help="Attention backend; see sglang-fence declarations.")] = "native",
    speculative: Annotated[str, typer.Option(help="Speculative algorithm, or none.")] = "none",
    draft_tokens: Annotated[int | None, typer.Option(help=f"Drafts a round; {DRAFT_TOKENS} if left out.")] = None,
    draft_model: Annotated[str | None, typer.Option(help="Draft of standalone; left out: the target itself.")] = None,
    fence: Annotated[FenceName | None, typer.Option(help="Outranks the environment's switches.")] = None,
    overlap: Annotated[bool, typer.Option(help="Prepare the next step while the last one runs.")] = True,
    pdmux: Annotated[
        bool, typer.Option("--pdmux", help="PD multiplexing: prefill and decode at once, on streams of their own.")
    ] = False,
    graph: Annotated[GraphName, typer.Option(help="off: eager, for debugging.")] = GraphName.FULL,
    max_running: Annotated[int, typer.Option(help="Requests that run at once.")] = 16,
    kv_tokens: Annotated[int | None, typer.Option(help="Size of the KV pool in tokens.")] = None,
    chunk: Annotated[int, typer.Option(help="Tokens of prefill a step.")] = 512,
    context_length: Annotated[int | None, typer.Option(help="Shortens the model's context.")] = None,
    sliding_window: Annotated[
        int | None, typer.Option(max=2**31 - 1, help="Gives every layer this window, in tokens.")
    ] = None,
    prefix_cache: Annotated[bool, typer.Option(help="Keep pages for prompts with the same beginning.")] = True,
    costs: Annotated[Path | None, typer.Option(help="Cost table of the simulated device, JSON.")] = None,
    check_hazards: Annotated[
        bool | None, typer.Option(help="Check the order of shared accesses; on the simulated device, done if left out.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Of sampling and of the built-in prompts.")] = 0,
    observe: Annotated[bool, typer.Option(help="Observe each step; off, nothing is counted.")] = True,
    timing_every: Annotated[
        int | None, typer.Option(help="Device times on each so-many-th step, 0: none; 101, in virtual time 1.")
    ] = None,
    metrics_port: Annotated[int | None, typer.Option(help="Serve /metrics on this loopback port; 0: any.")] = None,
    hold: Annotated[float | None, typer.Option(help="Go on serving metrics for so many seconds afterwards.")] = None,
    otlp: Annotated[
        str | None, typer.Option(help="Send traces to this collector, URL; env: as the OTEL_* variables say.")
    ] = None,
    trace_ratio: Annotated[
        float | None, typer.Option(help="Share of steps to trace; 0.01 for --otlp, 1 for --perfetto.")
    ] = None,
    trace_coarse: Annotated[bool, typer.Option("--trace-coarse", help="Trace every coarse step beside them.")] = False,
    nvtx: Annotated[bool, typer.Option("--nvtx", help="Mark the phases of each step for Nsight Systems.")] = False,
    perfetto: Annotated[Path | None, typer.Option(help="Write the run as a Perfetto trace.")] = None,
    record: Annotated[
        Path | None, typer.Option(help="Write timed and traced steps, for sglang-fence report; traces 0.1 of them.")
    ] = None,
    profile_steps: Annotated[
        str | None, typer.Option(metavar="N:M", help="Steps to capture, for nsys --capture-range=cudaProfilerApi.")
    ] = None,
    flight_recorder: Annotated[
        int | None, typer.Option(help="Steps that the flight recorder keeps, 256 if left out; 0: none.")
    ] = None,
    flight_dir: Annotated[
        Path | None, typer.Option(help="Where its dumps go (on SIGUSR2, a crash, a stall); the system's temporary one.")
    ] = None,
    watchdog: Annotated[
        float | None, typer.Option(help="Dump when a step hasn't moved for so many seconds; off if left out.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Write a line of JSON a request, in the order given.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write what the fence did, as JSON.")] = None,
) -> None:
    """Serve prompts through an overlapped scheduler behind the fence, and say what the fence did in each step.

    Exit status: 0, 1 if hazards were found, 2 for a mistake in what was given or if no prompt could be served.
    """
    defaults = _sampling(max_new_tokens, temperature, top_p, seed, stop or [])
    check_writable(output, json_file, record)
    files = {"--prompts": prompts, "--output": output, "--json": json_file, "--costs": costs, "--perfetto": perfetto}
    check_apart(files | {"--record": record})
    observe_options = ObserveOptions(
        observe=observe,
        timing_every=timing_every,
        trace_ratio=trace_ratio,
        trace_coarse=trace_coarse,
        metrics_port=metrics_port,
        hold=hold,
        otlp=otlp,
        nvtx=nvtx,
        perfetto=perfetto,
        record=record,
        profile_steps=profile_steps,
        flight_recorder=flight_recorder,
        flight_dir=flight_dir,
        watchdog=watchdog,
    )
    flight = observe_options.flight()
    lines = _lines(prompts, requests, seed, defaults)
    if top_p < 1.0 and all((line.params or defaults).temperature == 0.0 for line in lines):
        msg = f"--top-p {top_p}: nothing is sampled at temperature 0; give --temperature as well"
        raise ConfigError(msg)
    if draft_tokens is not None and speculative == "none":
        msg = f"--draft-tokens {draft_tokens}: nothing drafts; give --speculative as well"
        raise ConfigError(msg)
    options = EngineOptions(
        model=ModelOptions(model, dtype.value, sliding_window, context_length),
        attention=attention,
        fence=None if fence is None else fence.value,
        overlap=overlap,
        pdmux=pdmux,
        graph=graph.value,
        max_running=min(max_running, max(2, len(lines))),  # room for more would be captured, and never used
        kv_tokens=kv_tokens,
        chunk=chunk,
        speculative=speculative,
        draft_tokens=DRAFT_TOKENS if draft_tokens is None else draft_tokens,
        draft_model=draft_model,
        prefix_cache=prefix_cache,
        switches=Switches.from_environ(),
    )
    opened = open_device(device.value, costs, check_hazards=check_hazards)
    virtual = opened.virtual_seconds() is not None
    watching = observing(observe_options, virtual=virtual)
    engine = Engine(opened, options, watching.observers, sampling=watching.sampling, ring=flight.ring())
    watching.announce()
    asked = [to_request(line, engine.model.tokenizer, defaults) for line in lines]
    for request in asked:
        if not request.finished:
            engine.check(request)
    failed = [request for request in asked if request.error is not None]
    if len(failed) == len(asked):
        _write_lines(output, asked)
        more = f" (and {len(failed) - 1} more like it)" if len(failed) > 1 else ""
        msg = f"request {failed[0].id}: {failed[0].error}{more}; nothing is left to serve"
        raise PromptError(msg)
    for request in failed:
        typer.echo(f"sglang-fence: request {request.id}: {request.error}; the others are served", err=True)
    started = time.perf_counter()
    with recording(engine.probe, flight, virtual=virtual), serving(len(asked) - len(failed)) as on_finish:
        scheduler = engine.serve(asked, on_finish)
        engine.close()
    seconds = time.perf_counter() - started
    outcome = Outcome.of(engine, scheduler, watching.summary, asked, seconds, check_hazards=check_hazards is not False)
    _write_lines(output, asked)
    if json_file is not None:
        write(json_file, json.dumps(outcome.to_json(), indent=2) + "\n")
    if record is not None and watching.recorder is not None:
        write(record, json.dumps({"schema": SCHEMA, "run": outcome.to_json(), **watching.recorder.to_json()}) + "\n")
    try:
        print_report(outcome, Console())
        watching.hold(hold)
    finally:
        watching.close()
    raise typer.Exit(1 if outcome.hazards else 0)


def _sampling(max_new_tokens: int, temperature: float, top_p: float, seed: int, stop: list[str]) -> SamplingParams:
    if max_new_tokens < 1:
        msg = f"--max-new-tokens {max_new_tokens}: give 1 or more"
        raise ConfigError(msg)
    if not 0.0 <= temperature <= MAX_TEMPERATURE:
        msg = f"--temperature {temperature}: give 0 (greedy) or more, up to {MAX_TEMPERATURE:g}"
        raise ConfigError(msg)
    if not MIN_TOP_P <= top_p <= 1.0:
        msg = f"--top-p {top_p}: give a share above 0, up to 1"
        raise ConfigError(msg)
    if "" in stop:
        msg = "--stop '': an empty text would end every output at once"
        raise ConfigError(msg)
    return SamplingParams(max_new_tokens, temperature, top_p, seed, tuple(stop))


def _lines(path: Path | None, count: int | None, seed: int, defaults: SamplingParams) -> list[PromptLine]:
    if path is None:
        return built_in(count or BUILT_IN_REQUESTS, seed)
    return take(read_prompts(path, defaults), count)


def _write_lines(path: Path | None, requests: list[Request]) -> None:
    if path is not None:
        content: list[dict[str, Any]] = [request.to_json() for request in requests]
        write(path, "".join(json.dumps(line) + "\n" for line in content))
