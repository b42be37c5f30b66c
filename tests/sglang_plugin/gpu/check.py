"""Real SGLang on a GPU: is what the plugin says true, and what does it cost?

    python3 -m tests.sglang_plugin.gpu.check correct MODELS SCRATCH [small,big]
    python3 -m tests.sglang_plugin.gpu.check cost MODELS SCRATCH [ROUNDS]

``correct`` is about counts, ends, reasons and tokens, plain and with EAGLE; ``cost`` about throughput on ``big`` with
and without, host cost a step, and what forcing every fence coarse costs. Run it in the repository's root.

Prints one line a claim, ``ok`` or ``WRONG``, and the figures behind it as JSON; exit status 1 if one is wrong.
"""

# ruff: noqa: T201 - it prints

from __future__ import annotations

import json
import statistics
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.sglang_plugin.gpu.engines import Engine

WRONG: list[str] = []


def claim(text: str, *, holds: bool, **figures: object) -> None:
    """Print one."""
    if not holds:
        WRONG.append(text)
    print(f"{'ok   ' if holds else 'WRONG'} {text} {json.dumps(_plain(figures), default=str)}", flush=True)


def _plain(figures: dict[Any, Any]) -> dict[str, Any]:
    """Return figures with keys that JSON takes: several words joined by a space."""
    return {
        " ".join(str(part) for part in key) if isinstance(key, tuple) else str(key): (
            _plain(value) if isinstance(value, dict) else value
        )
        for key, value in figures.items()
    }


def by(cells: list[dict[str, Any]], *keys: str) -> dict[tuple[Any, ...], int]:
    """Return steps by some of what tells cells apart."""
    counts: Counter[tuple[Any, ...]] = Counter()
    for cell in cells:
        counts[tuple(cell[key] for key in keys)] += cell["steps"]
    return dict(counts)


def mean_us(cells: list[dict[str, Any]], duration: str, **which: str) -> dict[str, float]:
    """Return how many durations there are, and their mean."""
    chosen = [cell[duration] for cell in cells if which.items() <= cell.items()]
    count = sum(one["count"] for one in chosen)
    return {"count": count, "mean_us": round(sum(one["sum_us"] for one in chosen) / count, 2) if count else 0.0}


def correct(models: Path, scratch: Path, names: list[str]) -> None:
    """Compare an engine with the plugin, every step timed, to the independent count and to one without."""
    for name in names:
        for eagle in (False, True):
            label = f"{name} {'EAGLE' if eagle else 'plain'}"
            timed = {"SGLANG_FENCE_TIMING_EVERY": "1"}
            with ExitStack() as stack:
                observed = Engine(f"{name}-{eagle}-with", models / name, scratch, eagle=eagle, environ=timed)
                stack.enter_context(observed)
                print(label, "ready", observed.answer(), flush=True)
                plain = Engine(f"{name}-{eagle}-without", models / name, scratch, eagle=eagle, plugin=False)
                stack.enter_context(plain)
                print(label, "ready", plain.answer(), flush=True)
                compare(label, observed, plain, eagle=eagle)


def compare(label: str, observed: Engine, plain: Engine, *, eagle: bool) -> None:
    """Check one pair of engines."""
    batch, new_tokens = (8, 64) if eagle else (32, 256)
    blocks = [(observed.generate(seed, batch, new_tokens), plain.generate(seed, batch, new_tokens)) for seed in (1, 2)]
    again = plain.generate(1, batch, new_tokens)
    differing = sum(a != b for mine, other in blocks for a, b in zip(mine["tokens"], other["tokens"], strict=True))
    noise = sum(a != b for a, b in zip(again["tokens"], blocks[0][1]["tokens"], strict=True))
    claim(f"{label}: tokens are those without the plugin", holds=differing == 0, differing=differing, noise=noise)
    ledger, counted = observed.ledger(), observed.counted()
    cells = ledger["cells"]
    claim(
        f"{label}: counts are the independent ones", holds=by(cells, "mode", "fence") == dict(counted), counted=counted
    )
    ends = by(cells, "mode", "resolved", "fence", "reason")
    if eagle:
        rounds = {key: count for key, count in ends.items() if key[0] == "decode"}
        holds = set(rounds) == {("decode", "UNKNOWN", "coarse", "backend_unknown")}
        claim(f"{label}: every round is coarse, backend_unknown on the draft runner", holds=holds, ends=ends)
        verify = [one for one in ledger["phases"] if one["mode"] == "target_verify"]
        holds = {(one["runner"], one["resolved"]) for one in verify} == {("target", "IN_REPLAY")}
        claim(f"{label}: verify publishes in the graph all the same", holds=holds, phases=ledger["phases"])
    else:
        decodes = {key for key in ends if key[0] == "decode"}
        holds = decodes == {("decode", "IN_REPLAY", "fine", None)}
        claim(f"{label}: every decode is fine and IN_REPLAY", holds=holds, ends=ends)
    extends = {key[1:] for key in ends if key[0] == "extend"}
    claim(
        f"{label}: every extend is coarse, backend_unknown", holds=extends == {("UNKNOWN", "coarse", "backend_unknown")}
    )
    claim(f"{label}: no hook failed", holds=not ledger["errors"], errors=ledger["errors"], hooks=ledger["hooks"])
    waits = mean_us(cells, "wait", mode="decode")
    figures = {
        "slack, decode": mean_us(cells, "slack", mode="decode"),
        "wait, decode": waits,
        "forward, decode": mean_us(cells, "forward", mode="decode"),
        "gap": {last: [one["count"], one["sum_us"] / max(1, one["count"])] for last, one in ledger["gaps"].items()},
        "lost_us": {str((c["mode"], c["reason"])): c["lost_us"] for c in cells if c["lost_us"]},
        "unresolved": ledger["unresolved"],
        "clamps": ledger["clamps"],
        "calibration_us": ledger["calibration_us"],
        "timing": ledger["timing"],
        "cost_us_a_step": cost_us(ledger),
    }
    # A step is left without a wait or slack only at the ends: the last before a pause, or one that gave way.
    there = waits["count"] >= 0.95 * sum(count for key, count in ends.items() if key[0] == "decode")
    claim(f"{label}: histograms are filled", holds=there, **figures)


def cost_us(ledger: dict[str, Any]) -> dict[str, float]:
    """Return host time a step in µs, by hook and in all."""
    steps = max(1, sum(cell["steps"] for cell in ledger["cells"]))
    costs = {hook: round(ns / steps / 1e3, 2) for hook, ns in ledger["cost_ns"].items() if ns}
    return {**costs, "all": round(sum(costs.values()), 2)}


def cost(models: Path, scratch: Path, rounds: int) -> None:
    """Measure throughput on ``big`` in interleaved blocks, and host cost."""
    coarse = {"SGLANG_FORCE_COARSE_WAR_BARRIER": "1", "SGLANG_FENCE_TIMING_EVERY": "1"}
    kinds: dict[str, dict[str, Any]] = {
        "without": {"plugin": False},
        "default": {"observed": False},
        "every": {"observed": False, "environ": {"SGLANG_FENCE_TIMING_EVERY": "1"}},
        "coarse": {"environ": coarse},
    }
    rates: dict[str, list[float]] = {name: [] for name in kinds}
    ratios: dict[str, list[float]] = {name: [] for name in kinds if name != "without"}
    with ExitStack() as stack:
        engines = {}
        for name, options in kinds.items():
            engines[name] = stack.enter_context(Engine(f"cost-{name}", models / "big", scratch, **options))
            print(name, "ready", engines[name].answer(), flush=True)
            engines[name].generate(0)  # compiles
        for number in range(rounds):
            order = list(kinds) if number % 2 else list(reversed(kinds))
            block = {name: engines[name].generate(1 + number)["tokens_per_s"] for name in order}
            for name, rate in block.items():
                rates[name].append(rate)
            for name, found in ratios.items():
                found.append(block[name] / block["without"])
            print(json.dumps({name: round(rate, 1) for name, rate in block.items()}), flush=True)
        summary = {name: [round(statistics.median(found), 5), round(min(found), 5), round(max(found), 5)]
                   for name, found in ratios.items()}  # fmt: skip
        holds = summary["default"][0] >= 0.997
        claim("big: throughput at the default is 99.7 % of without, or more", holds=holds, median_min_max=summary)
        ledger = engines["coarse"].ledger()
        lost = sum(cell["lost_us"] for cell in ledger["cells"] if cell["mode"] == "decode")
        decodes = sum(cell["steps"] for cell in ledger["cells"] if cell["mode"] == "decode")
        step_us = {name: 32e6 / statistics.median(found) for name, found in rates.items()}
        lost_us, slower_us = lost / max(1, decodes), step_us["coarse"] - step_us["every"]
        holds = 0.5 * slower_us <= lost_us <= 2.0 * slower_us
        claim(
            "big: lost time explains what forced coarse costs, within a factor of two",
            holds=holds,
            lost_us_a_step=lost_us,
            slower_us_a_step=slower_us,
            step_us=step_us,
        )
    for every, bound in (("16", 5.0), ("1", 20.0)):
        timed = {"SGLANG_FENCE_TIMING_EVERY": every}
        with Engine(f"host-{every}", models / "small", scratch, environ=timed) as engine:
            engine.answer()
            engine.generate(0)
            before = engine.ledger()
            for seed in range(1, 5):
                engine.generate(seed)
            after = engine.ledger()
        for cell in after["cells"]:
            cell["steps"] -= sum(old["steps"] for old in before["cells"] if _same(old, cell))
        after["cost_ns"] = {hook: ns - before["cost_ns"].get(hook, 0) for hook, ns in after["cost_ns"].items()}
        figures = cost_us(after)
        claim(f"host cost, every {every}: {bound} µs a step or less", holds=figures["all"] <= bound, **figures)


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    keys = ("mode", "backend", "declared", "resolved", "fence", "reason")
    return all(one[key] == other[key] for key in keys)


if __name__ == "__main__":
    what, models, scratch, *rest = sys.argv[1:]
    if what == "correct":
        correct(Path(models), Path(scratch), (rest[0] if rest else "small,big").split(","))
    else:
        cost(Path(models), Path(scratch), int(rest[0]) if rest else 6)
    sys.exit(bool(WRONG))
