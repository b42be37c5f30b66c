"""How a server stands: one page, or two pages compared."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from math import inf
from typing import TYPE_CHECKING, TypeVar

from sglang_fence.cli.top.page import Page
from sglang_fence.contract import FenceKind

if TYPE_CHECKING:
    from collections.abc import Mapping

_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One row. None: can't be said. Counts and percentiles are of ``over_s`` seconds, or since the server's start."""

    url: str
    error: str | None = None
    """Why there is nothing else."""
    over_s: float | None = None
    """Seconds between the two pages; None where there is one page only: then there are totals and no rates."""
    steps: float = 0
    steps_per_s: float | None = None
    fine_share: float | None = None
    coarse: dict[str, float] = field(default_factory=dict[str, float])
    """Coarse steps by reason, most first; those without any are left out."""
    slack_p50_s: float | None = None
    slack_p99_s: float | None = None
    wait_p50_s: float | None = None
    wait_p99_s: float | None = None
    lost_s: float = 0.0
    lost_s_per_s: float | None = None
    barrier: str | None = None
    """``on``, ``off``, or ``mixed`` where ranks differ."""

    def to_json(self) -> dict[str, object]:
        """JSON-ready values."""
        return asdict(self)


def standing(url: str, page: Page, before: Page | None = None) -> Standing:
    """Compare ``page`` with the one ``before`` it, or take its totals where there is none, or the server restarted."""
    if before is not None and _restarted(page, before):
        before = None
    then = before or Page(page.at_s)
    fences = _since(page.fences, then.fences)
    reasons = _since(page.reasons, then.reasons)
    slack, wait = _since(page.slack, then.slack), _since(page.wait, then.wait)
    lost_s = page.lost_s - then.lost_s
    over_s = None if before is None else page.at_s - before.at_s
    steps = sum(fences.values())
    return Standing(
        url=url,
        over_s=over_s,
        steps=steps,
        steps_per_s=steps / over_s if over_s else None,
        fine_share=fences.get(FenceKind.FINE.value, 0) / steps if steps else None,
        coarse=dict(sorted(((r, n) for r, n in reasons.items() if n > 0), key=lambda one: -one[1])),
        slack_p50_s=quantile(slack, 0.5),
        slack_p99_s=quantile(slack, 0.99),
        wait_p50_s=quantile(wait, 0.5),
        wait_p99_s=quantile(wait, 0.99),
        lost_s=lost_s,
        lost_s_per_s=lost_s / over_s if over_s else None,
        barrier={0: None, 1: "on" if True in page.barrier else "off"}.get(len(page.barrier), "mixed"),
    )


def quantile(cumulated: Mapping[float, float], share: float) -> float | None:
    """The value below which ``share`` of what was counted lies, as Prometheus's ``histogram_quantile`` has it.

    Args:
        cumulated: counts by upper bound; the greatest is infinite.
        share: from 0 to 1.

    Returns:
        A value in the bounds' unit, on a straight line within its bucket; the greatest finite bound for what lies
        beyond it; None where nothing was counted.
    """
    bounds = sorted(cumulated)
    if not bounds or bounds[-1] != inf or cumulated[inf] <= 0:
        return None
    rank = share * cumulated[inf]
    below, lower = 0.0, 0.0
    for bound in bounds:
        count = cumulated[bound]
        if count >= rank and count > below:
            return lower if bound == inf else lower + (bound - lower) * (rank - below) / (count - below)
        below, lower = count, bound
    return lower


def _since(now: Mapping[_Key, float], then: Mapping[_Key, float]) -> dict[_Key, float]:
    return {key: count - then.get(key, 0) for key, count in now.items()}


def _restarted(page: Page, before: Page) -> bool:
    """Whether a counter went down."""
    return (
        _fell(page.fences, before.fences)
        or _fell(page.reasons, before.reasons)
        or _fell(page.slack, before.slack)
        or _fell(page.wait, before.wait)
    )


def _fell(now: Mapping[_Key, float], then: Mapping[_Key, float]) -> bool:
    return any(now.get(key, 0) < count for key, count in then.items())
