"""Which series are there at 0 before anything happened.

``rate()`` doesn't see the increase that a series is born with, and a fallback that alerts look for may come once. So
each counter of what goes wrong is seeded for every mode and backend that is declared, with every reason. Histograms
have 28 series each; they are seeded for the fence that a declaration leads to, and others appear as they occur.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sglang_fence.catalogue import ends_label
from sglang_fence.catalogue.metrics import DOWNGRADE_CAUSE
from sglang_fence.contract import FallbackReason, FenceKind, SharedReadEnds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sglang_fence.observe.ledger import Facts

REASONS = tuple(reason.value for reason in FallbackReason)
LOOP_WITHOUT_FENCE = "normal"
"""Without overlap nothing is fenced, whatever the switches say."""


@dataclass(frozen=True, slots=True)
class Seeds:
    """Label values to start with, by metric; in the order of the catalogue's labels."""

    modes: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]
    """Mode and backend."""
    steps: tuple[tuple[str, ...], ...]
    slack: tuple[tuple[str, ...], ...]
    wait: tuple[tuple[str, ...], ...]
    """Of ``forward`` as well."""
    downgrades: tuple[tuple[str, ...], ...]


def seeds_of(facts: Facts) -> Seeds:
    """Return what ``facts`` lead to expect."""
    rows = [(mode.value, backend, declared) for backend, mode, declared in facts.declarations]
    unfenced = _unfenced(facts)
    expected = [(mode, ends_label(declared), _leads_to(declared, unfenced).value) for mode, _, declared in rows]
    return Seeds(
        modes=tuple(dict.fromkeys(mode for mode, _, _ in rows)),
        pairs=tuple(dict.fromkeys((mode, backend) for mode, backend, _ in rows)),
        steps=tuple(
            (mode, backend, ends_label(ends), fence.value)
            for mode, backend, declared in rows
            for ends, fence in _reachable(declared, unfenced)
        ),
        slack=tuple(dict.fromkeys((mode, ends) for mode, ends, fence in expected if fence == FenceKind.FINE.value)),
        wait=tuple(dict.fromkeys((mode, fence) for mode, _, fence in expected)),
        downgrades=tuple(
            (backend, mode, cause)
            for mode, backend, declared in rows
            if declared is SharedReadEnds.IN_REPLAY
            for cause in DOWNGRADE_CAUSE.values or ()
        ),
    )


def _unfenced(facts: Facts) -> FenceKind | None:
    """What is said of every step in the place of a fence; None: steps have one."""
    if facts.loop == LOOP_WITHOUT_FENCE:
        return FenceKind.ABSENT
    return None if facts.barrier_enabled else FenceKind.DISABLED


def _leads_to(declared: SharedReadEnds, unfenced: FenceKind | None) -> FenceKind:
    if unfenced is not None:
        return unfenced
    return FenceKind.COARSE if declared is SharedReadEnds.UNKNOWN else FenceKind.FINE


def _reachable(declared: SharedReadEnds, unfenced: FenceKind | None) -> Iterator[tuple[SharedReadEnds, FenceKind]]:
    """Ends that aren't earlier than declared (R4), each behind the fences that it can get."""
    for ends in SharedReadEnds:
        if ends < declared:
            continue
        if unfenced is not None:
            yield ends, unfenced
            continue
        yield ends, FenceKind.COARSE
        if ends is not SharedReadEnds.UNKNOWN:
            yield ends, FenceKind.FINE
