"""What a ledger says, metric by metric, as plain numbers by label values. Knows nothing of ``prometheus_client``.

Both ways of exporting read it: at each scrape, or once a second for differences. All counters of one reading rest on
one look at each cell, so that reasons add up to coarse steps whatever the serving thread does meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from sglang_fence.catalogue import METRICS, ends_label
from sglang_fence.catalogue.metrics import PREFIX
from sglang_fence.contract import FenceKind
from sglang_fence.observe.ledger import BUCKETS
from sglang_fence_exporters.prometheus_seeds import REASONS, Seeds, seeds_of
from sglang_fence_exporters.prometheus_standing import STANDING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from sglang_fence.catalogue import Metric
    from sglang_fence.observe.ledger import Cell, Durations, Exemplar, Ledger, StepKind

Values: TypeAlias = tuple[str, ...]
"""Label values, in the order of the catalogue's labels."""

_US = 1_000_000


class Histogram:
    """Durations of several cells, merged. ``counts`` by bucket, not cumulated; ``exemplars``: the newest by bucket."""

    __slots__ = ("counts", "exemplars", "sum_us")

    def __init__(self) -> None:
        self.counts = [0] * (BUCKETS + 1)
        self.sum_us = 0.0
        self.exemplars: dict[int, Exemplar] = {}

    def add(self, durations: Durations) -> None:
        """Add a cell's."""
        self.sum_us += durations.sum_us
        self.counts = [mine + other for mine, other in zip(self.counts, durations.counts.copy(), strict=True)]
        for bucket, exemplar in durations.exemplars.copy().items():
            known = self.exemplars.get(bucket)
            if known is None or known.at_ns < exemplar.at_ns:
                self.exemplars[bucket] = exemplar


class Row(NamedTuple):
    """Steps of one kind as they were at one moment, with their label values."""

    mode: str
    backend: str
    ends: str
    fence: str
    reason: str | None
    """Of coarse steps alone."""
    downgrade: str | None
    unsound: bool
    steps: int
    cell: Cell


def _row(kind: StepKind, cell: Cell) -> Row:
    return Row(
        mode=kind.mode.value,
        backend=kind.backend,
        ends=ends_label(kind.resolved),
        fence=kind.fence.value,
        reason=kind.reason.value if kind.fence is FenceKind.COARSE and kind.reason is not None else None,
        downgrade=kind.downgrade,
        unsound=kind.resolved < kind.declared,
        steps=cell.steps,
        cell=cell,
    )


def _counted(rows: Iterable[tuple[Values, float]], seeds: Iterable[Values]) -> dict[Values, float]:
    numbers: dict[Values, float] = dict.fromkeys(seeds, 0)
    for values, number in rows:
        numbers[values] = numbers.get(values, 0) + number
    return numbers


def _merged(rows: Iterable[tuple[Values, Durations]], seeds: Iterable[Values]) -> dict[Values, Histogram]:
    histograms = {values: Histogram() for values in seeds}
    for values, durations in rows:
        if durations.count or values in histograms:
            histograms.setdefault(values, Histogram()).add(durations)
    return histograms


class Look:
    """One look at a ledger. Each method returns one metric's series."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._rows = [_row(kind, cell) for kind, cell in list(ledger.cells.items())]
        self._seeds: Seeds = seeds_of(ledger.facts)
        self._timed = ledger.facts.timing_enabled

    def steps(self) -> dict[Values, float]:
        """Steps by mode, backend, ends and fence."""
        return _counted((((r.mode, r.backend, r.ends, r.fence), r.steps) for r in self._rows), self._seeds.steps)

    def coarse_fallbacks(self) -> dict[Values, float]:
        """Coarse steps by mode, backend and reason."""
        pairs = dict.fromkeys([*self._seeds.pairs, *((r.mode, r.backend) for r in self._rows)])
        return _counted(
            (((r.mode, r.backend, r.reason), r.steps) for r in self._rows if r.reason is not None),
            ((*pair, reason) for pair in pairs for reason in REASONS),
        )

    def lost_slack(self) -> dict[Values, float]:
        """Seconds of lost slack by mode and reason."""
        return self._lost(lambda cell: cell.lost_slack_us)

    def lost(self) -> dict[Values, float]:
        """Seconds lost by mode and reason."""
        return self._lost(lambda cell: cell.lost_us)

    def _lost(self, microseconds: Callable[[Cell], float]) -> dict[Values, float]:
        """Nothing is seeded where device times aren't taken: a 0 would say that nothing is lost."""
        modes = dict.fromkeys([*self._seeds.modes, *(r.mode for r in self._rows)]) if self._timed else ()
        numbers = _counted(
            (((r.mode, r.reason), us) for r in self._rows if r.reason is not None and (us := microseconds(r.cell)) > 0),
            ((mode, reason) for mode in modes for reason in REASONS),
        )
        return {values: us / _US for values, us in numbers.items()}

    def downgrades(self) -> dict[Values, float]:
        """Downgraded steps by backend, mode and cause."""
        rows = (((r.backend, r.mode, r.downgrade), r.steps) for r in self._rows if r.downgrade is not None)
        return _counted(rows, self._seeds.downgrades)

    def unsound_resolutions(self) -> dict[Values, float]:
        """Steps resolved too early, by backend and mode."""
        rows = (((r.backend, r.mode), r.steps) for r in self._rows if r.unsound)
        return _counted(rows, ((backend, mode) for mode, backend in self._seeds.pairs))

    def publications(self) -> dict[Values, float]:
        """Phases by mode, role, backend and ends."""
        phases = self._ledger.phases
        return _counted(
            (((p.mode.value, p.role, p.backend, ends_label(p.resolved)), count) for p, count in phases.items()),
            (),
        )

    def slack(self) -> dict[Values, Histogram]:
        """By mode and ends."""
        return _merged((((r.mode, r.ends), r.cell.slack) for r in self._rows), self._seeds.slack if self._timed else ())

    def wait(self) -> dict[Values, Histogram]:
        """By mode and fence."""
        return _merged((((r.mode, r.fence), r.cell.wait) for r in self._rows), self._seeds.wait if self._timed else ())

    def forward(self) -> dict[Values, Histogram]:
        """By mode and fence."""
        rows = (((r.mode, r.fence), r.cell.forward) for r in self._rows)
        return _merged(rows, self._seeds.wait if self._timed else ())

    def forward_gap(self) -> dict[Values, Histogram]:
        """By who was last."""
        gaps = self._ledger.gaps
        return _merged(
            (((last,), gap) for last, gap in gaps.items()), [(last,) for last in gaps] if self._timed else ()
        )


COUNTERS: dict[str, Callable[[Look], dict[Values, float]]] = {
    "steps_total": Look.steps,
    "coarse_fallbacks_total": Look.coarse_fallbacks,
    "lost_slack_seconds_total": Look.lost_slack,
    "lost_seconds_total": Look.lost,
    "downgrades_total": Look.downgrades,
    "unsound_resolutions_total": Look.unsound_resolutions,
    "publications_total": Look.publications,
}
HISTOGRAMS: dict[str, Callable[[Look], dict[Values, Histogram]]] = {
    "slack_seconds": Look.slack,
    "wait_seconds": Look.wait,
    "forward_seconds": Look.forward,
    "forward_gap_seconds": Look.forward_gap,
}


class Reading(NamedTuple):
    """One metric's series: numbers of a counter or gauge, or else histograms."""

    metric: Metric
    numbers: Mapping[Values, float]
    histograms: Mapping[Values, Histogram]


def read(ledger: Ledger) -> Iterator[Reading]:
    """Yield the catalogue's metrics in its order, also those without series. Lazily, so that work comes in pieces."""
    look = Look(ledger)
    for metric in METRICS:
        name = metric.name.removeprefix(PREFIX)
        if name in HISTOGRAMS:
            yield Reading(metric, {}, HISTOGRAMS[name](look))
        elif name in COUNTERS:
            yield Reading(metric, COUNTERS[name](look), {})
        else:
            yield Reading(metric, STANDING[name](ledger), {})
