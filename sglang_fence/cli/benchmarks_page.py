"""Makes ``docs/benchmarks.md`` from the result files in ``docs/benchmarks/``, and says which of them are missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.bench import plot
from sglang_fence.bench.fence_result import AGAIN as OFF_AGAIN
from sglang_fence.bench.fence_result import BASELINE, FenceResult
from sglang_fence.bench.result_files import load
from sglang_fence.bench.runtime_result import AGAIN, RUNTIME, RuntimeResult
from sglang_fence.cli.bench_tables import spread
from sglang_fence.cli.benchmarks_prose import FENCE, HEAD, RUNTIME_PROSE, TAIL

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from sglang_fence.bench.fence_result import Cell
    from sglang_fence.bench.runtime_result import BatchResult

FENCE_FILE, RUNTIME_FILE, PLOT_FILE = "fence.json", "runtime.json", "fence.svg"

OF_OFF, OF_COARSE = 0.985, 1.15
"""What the fine fence is meant to reach at a decode of 0.25 ms: of the fence off, and of the coarse one."""

_CLOSER = {
    "off again / off": OFF_AGAIN,
    "coarse / off": "coarse",
    "POST / off": "fine POST",
    "IN / off": "fine IN",
    "PRE / off": "fine PRE",
}
"""Column → variant of the closer look, against the fence off."""

_TITLES = {"gpu": "GPU", "cuda": "CUDA", "cpu": "CPU", "torch": "PyTorch", "transformers": "Transformers"}


def benchmarks_page(results: Path) -> str:
    """Return the page, as Markdown.

    Args:
        results: the folder of result files.

    Raises:
        ConfigError: a file is there and can't be read.
    """
    fence, runtime = results / FENCE_FILE, results / RUNTIME_FILE
    parts = [HEAD, FENCE]
    if fence.exists():
        parts += _fence(load(fence, "fence", FenceResult.from_json))
    else:
        parts.append(_missing(FENCE_FILE, "fence"))
    parts.append(RUNTIME_PROSE)
    if runtime.exists():
        parts += _runtime(load(runtime, "runtime", RuntimeResult.from_json))
    else:
        parts.append(_missing(RUNTIME_FILE, "runtime"))
    return "\n".join([*parts, TAIL])


def benchmarks_plot(results: Path) -> str:
    """Return the plot, as SVG.

    Raises:
        ConfigError: its result file is missing, or can't be read.
    """
    return plot.svg(load(results / FENCE_FILE, "fence", FenceResult.from_json))


def _missing(file: str, bench: str) -> str:
    return (
        f"**The figures are missing:** there is no `docs/benchmarks/{file}` yet. It is made on a machine with a GPU by"
        "\n\n```bash\nmkdir -p docs/benchmarks\n"
        f"sglang-fence bench {bench} --device cuda --json docs/benchmarks/{file}\n```\n"
    )


def _fence(result: FenceResult) -> Iterator[str]:
    yield _machine(result.machine)
    yield from _settings(result)
    closer = result.closer()
    decode = f"{closer[0].shape.forward_us / 1e3:g} ms"
    yield f"### A decode of {decode}, by the schedule stream's work\n"
    yield f"Without any preparation by the host; {_rounds(closer[0])}. Ratios are medians over rounds (range).\n"
    yield from _table(
        ("schedule µs", "off, steps/s", "ideal", *_CLOSER, "IN / coarse"),
        [_closer_row(cell) for cell in closer],
    )
    wanted = next((cell for cell in closer if cell.shape.schedule_us == result.schedule_us), None)
    if wanted is not None and _is_measured(result.machine):
        yield _judged(wanted)
    low, high = result.noise
    yield f"### By decode length and host preparation, with {result.schedule_us:g} µs on the schedule stream\n"
    yield f"Two loops that are the same differ by {low:.3f} to {high:.3f} (medians, over all cells).\n"
    yield f"![Steps/s of the fine fence over the coarse one, by decode length](benchmarks/{PLOT_FILE})\n"
    yield from _table(
        (
            "decode ms",
            "host ms",
            "off, steps/s",
            "off / ideal",
            "coarse / off",
            "IN / off",
            "IN / coarse",
            "ideal / coarse",
        ),
        [_grid_row(cell) for row in result.grid(result.schedule_us).values() for cell in row.values()],
    )


def _settings(result: FenceResult) -> Iterator[str]:
    rounds, block = result.settings["rounds"], result.settings["block_ms"]
    yield (
        f"Blocks of about {block:g} ms, interleaved rounds: {rounds:g}, behind one for warm-up; both doubled for the "
        "first table.\n"
    )


def _rounds(cell: Cell) -> str:
    return f"{len(cell.variants[BASELINE].values)} rounds of {cell.steps} steps"


def _closer_row(cell: Cell) -> tuple[str, ...]:
    ratios = [cell.variants[name] for name in _CLOSER.values()]
    return (
        f"{cell.shape.schedule_us:g}",
        f"{cell.variants[BASELINE].median:,.0f}",
        f"{cell.ideal_steps_per_s:,.0f}",
        *(spread(one) for one in ratios),
        spread(cell.against("fine IN", "coarse")),
    )


def _grid_row(cell: Cell) -> tuple[str, ...]:
    ideal, off = cell.ideal_steps_per_s, cell.variants[BASELINE].median
    return (
        f"{cell.shape.forward_us / 1e3:g}",
        f"{cell.shape.prepare_us / 1e3:g}",
        f"{off:,.0f}",
        f"{off / ideal:.3f}",
        spread(cell.variants["coarse"]),
        spread(cell.variants["fine IN"]),
        spread(cell.against("fine IN", "coarse")),
        f"{ideal / cell.variants['coarse'].median:.3f}",
    )


def _judged(cell: Cell) -> str:
    off, coarse = cell.variants["fine IN"].ratio, cell.against("fine IN", "coarse").ratio
    return (
        f"With {cell.shape.schedule_us:g} µs the fine fence is meant to reach {OF_OFF} of the fence off: {off:.3f}, "
        f"{_met(off >= OF_OFF)}; and {OF_COARSE} of the coarse one: {coarse:.3f}, {_met(coarse >= OF_COARSE)}.\n"
    )


def _runtime(result: RuntimeResult) -> Iterator[str]:
    yield _machine(result.machine)
    settings, model = result.settings, result.settings["model"]
    yield (
        f"A random Llama of {model['layers']} layers, {model['hidden_size']} wide, {model['vocab_size']} tokens of "
        f"vocabulary, {settings['dtype']}, attention `{settings['attention']}`; prompts of {settings['prompt_tokens']} "
        f"tokens, {settings['new_tokens']} new ones; rounds: {settings['rounds']}. Ratios are medians over rounds "
        "(range).\n"
    )
    yield from _table(
        ("batch", "variant", "µs a decode step", "of `generate`'s", "tokens/s, prefill included"),
        [
            (str(batch.batch), name, f"{one.median:,.0f}", spread(one), f"{batch.tokens_per_s[name].median:,.0f}")
            for batch in result.batches
            for name, one in batch.step_us.items()
        ],
    )
    yield from (f"* Batch {batch.batch}: {_comparison(batch, result.machine)}." for batch in result.batches)
    yield "\nTokens, on the largest batch:\n"
    yield from _table(
        ("data type", "equal up to a first that differs", "worst shortfall", "`generate`'s own", "allowed", "passed"),
        [
            (
                check.dtype,
                f"{check.equal:,} of {check.tokens:,}",
                f"{check.shortfall:.2g}",
                f"{check.own_shortfall:.2g}",
                f"{check.tolerance:g}",
                "yes" if check.passed else "**no**",
            )
            for check in result.checks
        ],
    )


def _comparison(batch: BatchResult, machine: Mapping[str, str]) -> str:
    own = batch.step_us[RUNTIME]
    noise = f"the same runtime twice differs by {spread(batch.step_us[AGAIN].against(own))}"
    if not _is_measured(machine):
        return noise
    return f"a step is meant to be no slower than `generate`'s, {_met(own.ratio <= 1)}; {noise}"


def _is_measured(machine: Mapping[str, str]) -> bool:
    return machine["device"] == "cuda"


def _met(fulfilled: bool) -> str:  # noqa: FBT001 - one plain fact
    return "met" if fulfilled else "**not met**"


def _machine(machine: Mapping[str, str]) -> str:
    facts = ", ".join(f"{_TITLES.get(name, name)} {value}" for name, value in machine.items() if name != "device")
    if _is_measured(machine):
        return f"Measured on: {facts}.\n"
    return f"**Not a measurement:** made on the {machine['device']} device ({facts}).\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for cells in (head, ["---"] * len(head), *rows):
        yield f"| {' | '.join(cells)} |"
    yield ""
