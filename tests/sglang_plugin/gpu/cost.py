"""What the plugin costs a real engine, and what a coarse fence does: engines side by side, asked in turn.

A plugin that is switched off in a running engine leaves its hooks there, so that "without" is an engine of its own that
never loaded it. There are two of them: what they differ by is what two engines of one kind differ by.
"""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from functools import reduce
from typing import TYPE_CHECKING

from tests.sglang_plugin.gpu.engines import Engine
from tests.sglang_plugin.gpu.ledgers import cost_us, gaps_us, lost_us, since, steps

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.sglang_plugin.gpu.ledgers import Ledger
    from tests.sglang_plugin.gpu.report import Report

BATCH = 32
CLOSING_S = 20.0
"""Kept for the last dumps and the end of the engines."""

LEAST_SHARE = 0.997
BOUNDS_US = {"default": 5.0, "every": 20.0}
"""Host time a step, by kind of engine."""

KINDS: Mapping[str, Mapping[str, str] | None] = {
    "without": None,
    "without again": None,
    "default": {},
    "every": {"SGLANG_FENCE_TIMING_EVERY": "1"},
}
"""Variables of each kind of engine; None: it has no plugin."""


def cost(report: Report, models: Path, scratch: Path, name: str, *, rounds: int, new_tokens: int) -> None:
    """Measure ``rounds`` rounds at least, and as many more as there is time for."""
    with ExitStack() as stack:
        engines = {
            kind: stack.enter_context(
                Engine(
                    f"cost-{kind.replace(' ', '-')}",
                    models / name,
                    scratch,
                    plugin=environ is not None,
                    environ=environ,
                    plugins=("ledger_dump", "forcing") if kind == "every" else ("ledger_dump",),
                )
            )
            for kind, environ in KINDS.items()
        }
        for kind, engine in engines.items():
            report.note("ready", engine=kind, after_s=engine.answer()["ready_s"])
        for engine in engines.values():
            engine.generate(0, BATCH, new_tokens)  # compiles
        report.note("warm")
        watched = [kind for kind, environ in KINDS.items() if environ is not None]
        before = {kind: engines[kind].ledger() for kind in watched}
        rates: dict[str, list[float]] = {kind: [] for kind in (*KINDS, "coarse")}
        coarse: list[Ledger] = []
        longest_s, number = 0.0, 0
        while number < rounds or report.left_s > CLOSING_S + longest_s:
            begun_s = report.elapsed_s
            coarse.append(_one_round(report, engines, rates, number, new_tokens))
            longest_s, number = max(longest_s, report.elapsed_s - begun_s), number + 1
        after = {kind: since(engines[kind].ledger(), before[kind]) for kind in watched}
        _explain(report, name, rates, after["every"])
        after["every"] = reduce(since, coarse, after["every"])
        _conclude(report, name, rates, after)


def _one_round(
    report: Report, engines: Mapping[str, Engine], rates: dict[str, list[float]], number: int, new_tokens: int
) -> Ledger:
    """Ask each engine for one block, in an order that turns; the one that times every step for a coarse one as well.

    Returns what the coarse one added to that engine's ledger.
    """
    added: Ledger = {}
    kinds = list(rates)
    place = number % len(kinds)
    turned = [*kinds[place:], *kinds[:place]]
    for kind in turned if number % 2 else reversed(turned):
        engine = engines["every" if kind == "coarse" else kind]
        before: Ledger = {}
        if kind == "coarse":
            before = engine.ledger()
            engine.force(coarse=True)
        rates[kind].append(engine.generate(1 + number, BATCH, new_tokens)["tokens_per_s"])
        if kind == "coarse":
            engine.force(coarse=False)
            added = since(engine.ledger(), before)
    report.note("tokens/s", **{kind: round(found[-1], 1) for kind, found in rates.items()})
    return added


def _conclude(report: Report, name: str, rates: Mapping[str, list[float]], ledgers: Mapping[str, Ledger]) -> None:
    """Claim what the acceptance asks for."""
    bases = [(one + other) / 2 for one, other in zip(rates["without"], rates["without again"], strict=True)]
    shares = {kind: [rate / base for rate, base in zip(found, bases, strict=True)] for kind, found in rates.items()}
    summary = {
        kind: {"median": round(statistics.median(found), 5), "min": round(min(found), 5), "max": round(max(found), 5)}
        for kind, found in shares.items()
    }
    report.claim(
        f"{name}: throughput at the default is {LEAST_SHARE:.1%} of without, or more",
        holds=summary["default"]["median"] >= LEAST_SHARE,
        rounds=len(bases),
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


def _explain(report: Report, name: str, rates: Mapping[str, list[float]], ledger: Ledger) -> None:
    """Compare coarse with fine blocks of one engine: is the difference what the plugin calls lost?"""
    forced = {"mode": "decode", "reason": "forced"}
    lost = lost_us(ledger, **forced) / max(1, steps(ledger, **forced))
    longer = [
        BATCH * 1e6 / coarse - BATCH * 1e6 / fine for coarse, fine in zip(rates["coarse"], rates["every"], strict=True)
    ]
    slower = statistics.median(longer)
    report.claim(
        f"{name}: lost time explains what forced coarse costs, within a factor of two",
        holds=0 < 0.5 * slower <= lost <= 2.0 * slower,
        lost_us_a_step=round(lost, 2),
        slower_us_a_step=round(slower, 2),
        slower_in_each_round=[round(one, 2) for one in longer],
        gaps=gaps_us(ledger),
        unresolved=ledger["unresolved"],
    )
