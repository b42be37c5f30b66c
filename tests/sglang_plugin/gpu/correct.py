"""Is what the plugin says of a real engine true? Plain and with EAGLE, each beside an engine without the plugin."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.sglang_plugin.gpu.engines import Engine
from tests.sglang_plugin.gpu.ledgers import by, cost_us, gaps_us, mean_us, since, steps

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.sglang_plugin.gpu.ledgers import Ledger
    from tests.sglang_plugin.gpu.report import Report

BLOCKS = {"plain": (32, 256), "eagle": (8, 64)}
"""Requests of a block, and tokens of each."""

FORWARD_US, SLACK_US = 5_257.0, 5_237.0
"""Of a decode step of ``big`` at batch 32 on an H200, seen before."""

EVERY_STEP = {"SGLANG_FENCE_TIMING_EVERY": "1"}


class Trio(NamedTuple):
    """Three engines that differ in the plugin alone: one times every step, one is at its default, one has none."""

    every: Engine
    default: Engine
    without: Engine


def correct(report: Report, models: Path, scratch: Path, names: Sequence[str], kinds: Sequence[str]) -> None:
    """Check every three engines; all of one model start at once."""
    for name in names:
        with ExitStack() as stack:
            trios: dict[str, Trio] = {}
            for kind in kinds:
                eagle, label = kind == "eagle", f"{name}-{kind}"
                trios[kind] = Trio(
                    Engine(f"{label}-every", models / name, scratch, eagle=eagle, environ=EVERY_STEP),
                    Engine(f"{label}-default", models / name, scratch, eagle=eagle),
                    Engine(f"{label}-without", models / name, scratch, eagle=eagle, plugin=False),
                )
                for engine in trios[kind]:
                    stack.enter_context(engine)
            for kind, trio in trios.items():
                report.note("ready", engine=f"{name} {kind}", after_s=[engine.answer()["ready_s"] for engine in trio])
            for kind, trio in trios.items():
                _compare(report, f"{name} {kind}", trio, kind=kind)
            for engine in (engine for trio in trios.values() for engine in (trio.every, trio.default)):
                engine.end()
                report.claim(f"{engine.name}: the engine shuts down", holds=engine.process.returncode == 0)


def _compare(report: Report, label: str, trio: Trio, *, kind: str) -> None:
    """Check three of one kind."""
    batch, new_tokens = BLOCKS[kind]
    blocks: dict[Engine, list[dict[str, Any]]] = {engine: [] for engine in trio}
    cold: Ledger = {}
    for seed in (1, 2):
        cold = trio.every.ledger() if seed > 1 else cold
        for engine, found in blocks.items():
            found.append(engine.generate(seed, batch, new_tokens))
    again, bare = trio.without.generate(1, batch, new_tokens), blocks[trio.without]
    noise = _differing(again, bare[0])
    for how in ("every", "default"):
        looked_at: Engine = getattr(trio, how)
        differing = sum(_differing(*pair) for pair in zip(blocks[looked_at], bare, strict=True))
        report.claim(
            f"{label} {how}: tokens are those without the plugin", holds=not differing, differing=differing, noise=noise
        )
        _check_counts(report, f"{label} {how}", looked_at, kind=kind)
    ledger = trio.every.ledger()
    _check_times(report, label, ledger)
    if label == "big plain":
        _check_near(report, label, since(ledger, cold))


def _differing(one: dict[str, Any], other: dict[str, Any]) -> int:
    """Return how many requests of two blocks got other tokens."""
    return sum(a != b for a, b in zip(one["tokens"], other["tokens"], strict=True))


def _check_counts(report: Report, label: str, engine: Engine, *, kind: str) -> None:
    """Check what doesn't depend on device times."""
    ledger, counted = engine.ledger(), engine.counted()
    holds = by(ledger, "mode", "fence") == dict(counted)
    report.claim(f"{label}: counts are the independent ones", holds=holds, counted=dict(counted))
    _check_ends(report, label, ledger, kind=kind)
    report.claim(f"{label}: no hook failed", holds=not ledger["errors"], errors=ledger["errors"], hooks=ledger["hooks"])
    report.note("cost", engine=label, **cost_us(ledger))


def _check_ends(report: Report, label: str, ledger: Ledger, *, kind: str) -> None:
    """Check where reads end, and why a step was coarse."""
    ends = by(ledger, "mode", "resolved", "fence", "reason")
    decodes = {key[1:]: count for key, count in ends.items() if key[0] == "decode"}
    rounds = steps(ledger, mode="decode")
    phases: list[dict[str, Any]] = ledger["phases"]
    if kind == "eagle":
        holds = set(decodes) == {("UNKNOWN", "coarse", "backend_unknown")}
        report.claim(f"{label}: every round is coarse, backend_unknown", holds=holds, ends=ends)
        owners = {(one["runner"], one["resolved"]): one["count"] for one in phases if one["mode"] == "draft_extend"}
        holds = owners.get(("draft", "UNKNOWN"), 0) >= rounds > 0 and {key[0] for key in owners} == {"draft"}
        report.claim(f"{label}: that is the draft runner's draft-extend", holds=holds, phases=phases, rounds=rounds)
        verifies = {(one["runner"], one["resolved"]) for one in phases if one["mode"] == "target_verify"}
        holds = verifies == {("target", "IN_REPLAY")}
        report.claim(f"{label}: verify publishes in the graph all the same", holds=holds)
    else:
        holds = set(decodes) == {("IN_REPLAY", "fine", None)}
        report.claim(f"{label}: every decode is fine and IN_REPLAY", holds=holds, ends=ends)
    extends = {key[1:] for key in ends if key[0] == "extend"}
    holds = extends == {("UNKNOWN", "coarse", "backend_unknown")}
    report.claim(f"{label}: every extend is coarse, backend_unknown", holds=holds)


def _check_times(report: Report, label: str, ledger: Ledger) -> None:
    """Check that histograms are filled."""
    slack, wait, forward = (mean_us(ledger, name, mode="decode") for name in ("slack", "wait", "forward"))
    decodes = steps(ledger, mode="decode")
    fine = steps(ledger, mode="decode", fence="fine")
    # A step is left without a wait or slack only at the ends: the last before a pause, or one that gave way.
    holds = wait["count"] >= 0.95 * decodes and slack["count"] >= 0.95 * fine and forward["count"] > 0
    report.claim(
        f"{label}: histograms are filled",
        holds=holds,
        decodes=decodes,
        slack=slack,
        wait=wait,
        forward=forward,
        gaps=gaps_us(ledger),
        unresolved=ledger["unresolved"],
        clamps=ledger["clamps"],
        calibration_us=ledger["calibration_us"],
        timing=ledger["timing"],
        lost_us={(one["mode"], one["reason"]): one["lost_us"] for one in ledger["cells"] if one["lost_us"]},
    )


def _check_near(report: Report, label: str, warm: Ledger) -> None:
    """Check that ``big`` says what was seen before; without the first block, which is cold.

    Of its forwards too few are timed for a mean: one in a thousand, and those behind an extend, which wait for it.
    """
    slack, wait = (mean_us(warm, name, mode="decode") for name in ("slack", "wait"))
    holds = abs(slack["mean_us"] / SLACK_US - 1) < 0.1 and 0 < wait["mean_us"] < FORWARD_US
    report.claim(f"{label}: slack and wait are near what was seen before", holds=holds, slack=slack, wait=wait)
