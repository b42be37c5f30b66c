"""Spreads and differences, as they are written into ``results.json``. All in µs."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MEDIAN_BOUND_US, P99_BOUND_US = 2.0, 10.0


def differences(pairs: Iterable[tuple[float, float]]) -> dict[str, Any] | None:
    """Return how one account differs from another; None where there is nothing to compare."""
    found = [one - other for one, other in pairs]
    if not found:
        return None
    middle = median(found)
    around = sorted(abs(one - middle) for one in found)
    plain = sorted(abs(one) for one in found)
    return {
        "steps": len(found),
        "median": round(middle, 3),
        "around_median_p99": round(_rank(around, 0.99), 3),
        "absolute_p50": round(_rank(plain, 0.5), 3),
        "absolute_p99": round(_rank(plain, 0.99), 3),
        "absolute_max": round(plain[-1], 3),
        "within_bounds": abs(middle) <= MEDIAN_BOUND_US and _rank(plain, 0.99) <= P99_BOUND_US,
    }


def spread(values: Sequence[float]) -> dict[str, float] | None:
    """Return some percentiles; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    return {f"p{share * 100:g}": round(_rank(ordered, share), 3) for share in (0.01, 0.5, 0.99)}


def _rank(ordered: Sequence[float], share: float) -> float:
    return ordered[max(0, min(len(ordered) - 1, round(share * len(ordered) + 0.5) - 1))]
