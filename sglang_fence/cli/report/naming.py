"""Words and colours of the page, taken from the catalogue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.catalogue.ranges import COLORS, NVTX_RANGES, UNLISTED_COLOR
from sglang_fence.catalogue.schema import Category
from sglang_fence.observe.counting import many

if TYPE_CHECKING:
    from collections.abc import Mapping

UNLISTED = "unlisted"
_CATEGORIES = {found.name: found.category.value for found in NVTX_RANGES} | {
    "barrier_wait": Category.BARRIER.value,
    "preparation": Category.METADATA.value,
    "graph": Category.REPLAY.value,
    "kernels": Category.FORWARD.value,
    "schedule work": Category.SCHEDULE.value,
    "wait": Category.BARRIER.value,
}


def category_of(name: str) -> str:
    """Return the category of a range, a span, or of what ran on a stream."""
    return _CATEGORIES.get(name, UNLISTED)


def colors() -> dict[str, str]:
    """Return each category's colour, as CSS takes it."""
    found = {category.value: argb for category, argb in COLORS.items()} | {UNLISTED: UNLISTED_COLOR}
    return {category: f"#{argb & 0xFFFFFF:06x}" for category, argb in found.items()}


def counts(found: Mapping[str, int]) -> str:
    """Return names with their counts, and one that is alone without."""
    there = {name: count for name, count in found.items() if count}
    if len(there) == 1:
        return next(iter(there))
    return ", ".join(f"{name} {count:,}" for name, count in sorted(there.items()))


def lost_slack_sums(coarse: int, known: int) -> str:
    """Say what sums of lost slack stand for, with ``coarse`` steps, of which it is known of so many."""
    if not coarse:
        return "No step was coarse, so no slack was lost."
    of = f"{known:,} of {many(coarse, 'coarse step')}"
    if not known:
        return f"Lost slack shows in {of}, so it isn't known: a dash stands for it, and no 0."
    return f"Lost slack is the sum over the steps in which it shows: {of}."
