"""What the plugin costs a real engine, and what a coarse fence does: engines asked in turn.

A plugin that is switched off in a running engine leaves its hooks there, so that "without" is an engine of its own that
never loaded it. It is asked twice in each round, around the others: what the two differ by is what means nothing. What
a coarse fence costs is measured within that one: its decodes are forced coarse for some steps, then not, and so on.
What the plugin calls lost is told by the others, forced in the same way.
"""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

from tests.sglang_plugin.gpu.engines import Engine
from tests.sglang_plugin.gpu.ledgers import cost_us, gaps_us, lost_us, mean_us, since, steps

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.sglang_plugin.gpu.ledgers import Ledger
    from tests.sglang_plugin.gpu.report import Report

BATCH = 32
CLOSING_S = 15.0
"""Kept for the last dumps and the end of the engines."""

LEAST_SHARE = 0.997
BOUNDS_US = {"default": 5.0, "every": 20.0}
"""Host time a step, by kind of engine."""

KINDS: Mapping[str, Mapping[str, str] | None] = {
    "without": None,
    "default": {},
    "every": {"SGLANG_FENCE_TIMING_EVERY": "1"},
}
"""Variables of each kind of engine; None: it has no plugin."""

WATCHED = {"default": ("default", "without"), "every": ("every",)}
"""Kinds that have the plugin, and whose cost of a coarse fence is what they call lost. Where every step is timed, that
makes a coarse fence itself dearer than in an engine that nobody observes."""

RUN = 16
"""Decodes that are forced coarse in one go, or not."""

SETTLING = 3
"""Of those, how many feel what came before."""

FORCED_BLOCKS = 5
FORCED = {"mode": "decode", "reason": "forced"}


def cost(report: Report, models: Path, scratch: Path, name: str, *, rounds: int, new_tokens: int) -> None:
    """Measure ``rounds`` rounds at least, and as many more as there is time for."""
    with ExitStack() as stack:
        engines = {
            kind: stack.enter_context(
                Engine(
                    f"cost-{kind}",
                    models / name,
                    scratch,
                    plugin=environ is not None,
                    environ=environ,
                    plugins=("forcing",) if environ is None else ("ledger_dump", "forcing"),
                )
            )
            for kind, environ in KINDS.items()
        }
        for kind, engine in engines.items():
            report.note("ready", engine=kind, after_s=engine.answer()["ready_s"])
        for engine in engines.values():
            engine.generate(0, BATCH, new_tokens)  # compiles
        report.note("warm")
        _explain(report, name, engines, new_tokens)
        before = {kind: engines[kind].ledger() for kind in WATCHED}
        rates: list[dict[str, list[float]]] = []
        longest_s = 0.0
        while len(rates) < rounds or report.left_s > CLOSING_S + longest_s:
            begun_s = report.elapsed_s
            rates.append(_one_round(report, engines, len(rates), new_tokens))
            longest_s = max(longest_s, report.elapsed_s - begun_s)
        _conclude(report, name, rates, {kind: since(engines[kind].ledger(), before[kind]) for kind in WATCHED})


def _one_round(report: Report, engines: Mapping[str, Engine], number: int, new_tokens: int) -> dict[str, list[float]]:
    """Ask without, the others, the others again the other way about, and without; return tokens/s by kind."""
    others = [kind for kind in engines if kind != "without"]
    if number % 2:
        others.reverse()
    rates: dict[str, list[float]] = {kind: [] for kind in engines}
    for kind in ("without", *others, *reversed(others), "without"):
        rates[kind].append(engines[kind].generate(1 + number, BATCH, new_tokens)["tokens_per_s"])
    report.note("tokens/s", **{kind: [round(one, 1) for one in found] for kind, found in rates.items()})
    return rates


def _conclude(
    report: Report, name: str, rates: Sequence[Mapping[str, list[float]]], ledgers: Mapping[str, Ledger]
) -> None:
    """Claim what the acceptance asks for."""
    shares = {kind: [sum(one[kind]) / sum(one["without"]) for one in rates] for kind in ledgers}
    shares["without, first by last"] = [one["without"][0] / one["without"][-1] for one in rates]
    summary = {kind: _spread(found) for kind, found in shares.items()}
    report.claim(
        f"{name}: throughput at the default is {LEAST_SHARE:.1%} of without, or more",
        holds=summary["default"]["median"] >= LEAST_SHARE,
        rounds=len(rates),
        shares=summary,
    )
    for kind, bound in BOUNDS_US.items():
        spent = cost_us(ledgers[kind])
        report.claim(
            f"{name}: host time at {kind} is {bound:g} µs a step or less, by own account",
            holds=0 < spent["all"] <= bound,
            steps=steps(ledgers[kind]),
            **spent,
        )


def _explain(report: Report, name: str, engines: Mapping[str, Engine], new_tokens: int) -> None:
    """Force some decodes coarse and others not: is what they differ by what the plugin calls lost?

    How long a decode takes goes up and down with the length of its contexts, and so with a rhythm of its own. Each
    block is run twice, and what was forced in one isn't in the other.
    """
    before = {kind: engines[kind].ledger() for kind in WATCHED}
    slower: dict[str, list[float]] = {kind: [] for kind in engines}
    for number in range(FORCED_BLOCKS):
        for kind, engine in engines.items():
            halves: list[dict[int, float]] = []
            for run in (RUN, -RUN):
                engine.force(run)
                engine.generate(1 + number, BATCH, new_tokens)
                engine.force(0)
                halves.append(slower_us(engine.took_us()))
            slower[kind] += [(halves[0][place] + halves[1][place]) / 2 for place in halves[0].keys() & halves[1]]
    measured = {kind: _quartiles(found) for kind, found in slower.items()}
    for kind, explained in WATCHED.items():
        ledger = since(engines[kind].ledger(), before[kind])
        lost = lost_us(ledger, **FORCED) / max(1, steps(ledger, **FORCED))
        for told in explained:
            median = measured[told]["median"]
            report.claim(
                f"{name}: what {kind} calls lost is what forced coarse costs {told}, within 20 % or 2 µs",
                holds=lost > 0 and abs(lost - median) <= max(2.0, 0.2 * abs(median)),
                lost_us_a_step=round(lost, 2),
                slower_us_a_step=measured[told],
            )
        report.note(
            "forced",
            engine=kind,
            gaps=gaps_us(ledger),
            forward={fence: mean_us(ledger, "forward", mode="decode", fence=fence) for fence in ("fine", "coarse")},
            unresolved=ledger["unresolved"],
        )


def slower_us(took_us: Sequence[tuple[bool, float]]) -> dict[int, float]:
    """Return by how many µs a step two neighbouring runs differ, the forced one less the other, by their place.

    A run counts with the median of its steps, so that a step that the host held up doesn't. The last one, which the end
    of a block cuts short, is left out. A place is the number of the first of the two runs, counted from 0.
    """
    runs = [(forced, [us for _, us in found][SETTLING:]) for forced, found in groupby(took_us, key=lambda one: one[0])]
    medians = [(forced, statistics.median(run)) for forced, run in runs if len(run) == RUN - SETTLING]
    return {
        place: (us - after) if forced else (after - us)
        for place, ((forced, us), (_, after)) in enumerate(pairwise(medians))
    }


def _quartiles(found: Sequence[float]) -> dict[str, float]:
    if len(found) < 2:
        return {"pairs": len(found), "median": 0.0}
    low, middle, high = statistics.quantiles(found, n=4)
    return {
        "pairs": len(found),
        "median": round(middle, 2),
        "lower_quartile": round(low, 2),
        "upper_quartile": round(high, 2),
        "mean": round(statistics.mean(found), 2),
        "standard_error": round(statistics.stdev(found) / len(found) ** 0.5, 2),
    }


def _spread(found: Sequence[float]) -> dict[str, float]:
    return {
        "median": round(statistics.median(found), 5),
        "min": round(min(found), 5),
        "max": round(max(found), 5),
    }
