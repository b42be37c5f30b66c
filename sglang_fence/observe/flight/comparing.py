"""What the dumps of several ranks say together: which of them is behind."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from sglang_fence.observe.counting import many

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sglang_fence.observe.flight.explaining import Standing
    from sglang_fence.observe.flight.facts import StepFacts

APART_NS = 5_000_000_000
"""Dumps that were taken further apart than this may differ since one rank ran on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Who is behind, if anybody."""

    standings: tuple[Standing, ...]
    behind: tuple[str, ...]
    """Labels of the ranks that are behind all others; empty: none is, or it can't be known."""
    why: str
    """In a sentence."""
    unknown: tuple[str, ...]
    """What limits this, in sentences."""
    left_out: int = 0
    """Dumps of processes of which there is a newer one."""


def compare(standings: Sequence[Standing]) -> Comparison:
    """Compare ranks. Of several dumps of one process the last one counts.

    Ranks that work on one model in lockstep launch the same batches under the same step numbers. Whether these do is
    looked at first; where they don't, numbers can't be compared, and that is said.
    """
    kept, unknown = _newest_of_each(standings)
    compared = partial(Comparison, standings=kept, left_out=len(standings) - len(kept))
    if len(kept) < 2:  # noqa: PLR2004 - one is behind another
        return compared(behind=(), why="not known: there is no other rank to compare it with", unknown=unknown)
    different = _first_difference(kept)
    if different is not None:
        return compared(behind=(), why=different, unknown=unknown)
    if not any(one.dump.steps for one in kept):
        return compared(behind=(), why="no rank: no step had begun on any of them", unknown=unknown)
    if not _steps_in_common(kept):
        unknown += ("whether the ranks run the same batches: no step is in all of the dumps",)
    times = [one.dump.wall_ns for one in kept]
    if max(times) - min(times) > APART_NS:
        seconds = (max(times) - min(times)) / 1e9
        unknown += (f"what the others did meanwhile: the dumps were taken {seconds:.0f} s apart",)
    behind, why = _behind(kept)
    return compared(behind=behind, why=why, unknown=unknown)


def _newest_of_each(standings: Sequence[Standing]) -> tuple[tuple[Standing, ...], tuple[str, ...]]:
    newest: dict[tuple[str, int], Standing] = {}
    for one in sorted(standings, key=lambda one: one.dump.wall_ns):
        newest[one.dump.rank, one.dump.pid] = one
    kept = tuple(newest.values())
    unknown: tuple[str, ...] = ()
    ranks = [one.dump.rank for one in kept]
    twice = sorted({rank for rank in ranks if ranks.count(rank) > 1})
    if twice:
        unknown += (f"which process is meant by rank {', '.join(twice)}: several say that they are it",)
    return tuple(sorted(kept, key=lambda one: (_natural(one.dump.rank), one.dump.pid))), unknown


def _natural(rank: str) -> tuple[int, str]:
    return (int(rank), "") if rank.isdecimal() else (-1, rank)


def _batches(standing: Standing) -> dict[int, StepFacts]:
    return {step.step: step for step in standing.dump.steps if not standing.dump.settled(step) or standing.idle}


def _steps_in_common(standings: Sequence[Standing]) -> set[int]:
    return set.intersection(*(set(_batches(one)) for one in standings))


def _first_difference(standings: Sequence[Standing]) -> str | None:
    """Say where two ranks ran different batches under one number; None where they never did."""
    first = _batches(standings[0])
    for other in standings[1:]:
        theirs = _batches(other)
        for step in sorted(first.keys() & theirs.keys()):
            one, two = first[step], theirs[step]
            if (one.mode, one.batch_size, one.tokens) != (two.mode, two.batch_size, two.tokens):
                return (
                    f"not known: under step {step}, {standings[0].label} ran {one.mode} of {one.batch_size} "
                    f"and {other.label} {two.mode} of {many(two.batch_size, 'request')}; ranks with batches of their "
                    "own can't be compared by their step numbers"
                )
    return None


def _behind(standings: Sequence[Standing]) -> tuple[tuple[str, ...], str]:
    completed = [one.completed for one in standings]
    if all(number is not None for number in completed) and len(set(completed)) > 1:
        least = min(number for number in completed if number is not None)
        most = max(number for number in completed if number is not None)
        behind = tuple(one.label for one in standings if one.completed == least)
        they = "it is" if len(behind) == 1 else "they are"
        return behind, f"the last step that {they} known to have completed is {least}; the furthest is at {most}"
    launched = [one.launched for one in standings]
    known = "" if all(number is not None for number in completed) else " (what is completed isn't known of every rank)"
    if len(set(launched)) > 1:
        least_launched, most_launched = min(launched), max(launched)
        slow = [one for one in standings if one.launched == least_launched]
        newest = slow[0].dump.newest
        at = "no step" if newest is None else f"step {newest.step}, {newest.stage.value.replace('_', ' ')}"
        return tuple(one.label for one in slow), (
            f"{'its host has' if len(slow) == 1 else 'their hosts have'} come to {at}; the furthest has come to step "
            f"{most_launched[0]}"
            f"{'' if most_launched[0] != least_launched[0] else ', further on'}{known}"
        )
    return (), f"no rank: all have come equally far{known}"
