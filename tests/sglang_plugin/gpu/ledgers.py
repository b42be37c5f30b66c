"""Questions to the ledger that an engine's test plugin dumps."""

from __future__ import annotations

from collections import Counter
from typing import Any

Ledger = dict[str, Any]
_KEYS = ("mode", "backend", "declared", "resolved", "fence", "reason")
_DURATIONS = ("slack", "wait", "forward")
_NONE = {"count": 0, "sum_us": 0.0}
_NOTHING: Ledger = {"steps": 0, "lost_us": 0.0, **dict.fromkeys(_DURATIONS, _NONE)}


def by(ledger: Ledger, *keys: str) -> dict[tuple[Any, ...], int]:
    """Return steps by some of what tells cells apart."""
    counts: Counter[tuple[Any, ...]] = Counter()
    for cell in ledger["cells"]:
        counts[tuple(cell[key] for key in keys)] += cell["steps"]
    return dict(counts)


def steps(ledger: Ledger, **which: str) -> int:
    """Return how many steps there are of some kind."""
    return sum(cell["steps"] for cell in ledger["cells"] if which.items() <= cell.items())


def mean_us(ledger: Ledger, duration: str, **which: str) -> dict[str, float]:
    """Return how many durations there are of some kind, and their mean."""
    chosen = [cell[duration] for cell in ledger["cells"] if which.items() <= cell.items()]
    count = sum(one["count"] for one in chosen)
    return {"count": count, "mean_us": round(sum(one["sum_us"] for one in chosen) / count, 2) if count else 0.0}


def gaps_us(ledger: Ledger) -> dict[str, dict[str, float]]:
    """Return how many gaps there are, and their mean, by who was the last to let the forward start."""
    return {
        last: {"count": one["count"], "mean_us": round(one["sum_us"] / max(1, one["count"]), 2)}
        for last, one in ledger["gaps"].items()
    }


def lost_us(ledger: Ledger, **which: str) -> float:
    """Return the lost time of steps of some kind, in all."""
    return float(sum(cell["lost_us"] for cell in ledger["cells"] if which.items() <= cell.items()))


def since(after: Ledger, before: Ledger) -> Ledger:
    """Return what was added between two dumps: steps, durations, lost time, and the account of host time."""
    old = {tuple(cell[key] for key in _KEYS): cell for cell in before["cells"]}
    cells = [
        {
            **cell,
            "steps": cell["steps"] - known["steps"],
            "lost_us": cell["lost_us"] - known["lost_us"],
            **{name: {part: cell[name][part] - known[name][part] for part in _NONE} for name in _DURATIONS},
        }
        for cell in after["cells"]
        for known in [old.get(tuple(cell[key] for key in _KEYS), _NOTHING)]
    ]
    costs = {hook: ns - before["cost_ns"].get(hook, 0) for hook, ns in after["cost_ns"].items()}
    return {**after, "cells": cells, "cost_ns": costs}


def cost_us(ledger: Ledger) -> dict[str, float]:
    """Return host time a step in µs by the plugin's own account, by hook and in all."""
    count = max(1, steps(ledger))
    costs = {hook: round(ns / count / 1e3, 2) for hook, ns in ledger["cost_ns"].items() if ns}
    return {**costs, "all": round(sum(ledger["cost_ns"].values()) / count / 1e3, 2)}
