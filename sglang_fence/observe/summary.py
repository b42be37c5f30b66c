"""``Summary``: an observer that adds a run up, for the table and the JSON of ``sglang-fence run``."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING

from sglang_fence.observe.observer import Observer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sglang_fence.observe.record import Phase, StepRecord


@dataclass(slots=True)
class ModeSummary:
    """Steps of one forward mode under one backend. Durations in µs."""

    steps: int = 0
    declared: Counter[str] = field(default_factory=Counter)
    resolved: Counter[str] = field(default_factory=Counter)
    fence: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    downgrades: Counter[str] = field(default_factory=Counter)
    slack_us: list[float] = field(default_factory=list)
    wait_us: list[float] = field(default_factory=list)

    def add(self, record: StepRecord) -> None:
        """Count one step in."""
        self.steps += 1
        self.declared[record.declared.name] += 1
        self.resolved[record.resolved.name] += 1
        self.fence[record.fence.value] += 1
        if record.reason is not None:
            self.reasons[record.reason.value] += 1
        if record.downgrade is not None:
            self.downgrades[record.downgrade] += 1
        if record.slack_us is not None:
            self.slack_us.append(record.slack_us)
        if record.wait_us is not None:
            self.wait_us.append(record.wait_us)

    def merge(self, other: ModeSummary) -> None:
        """Add ``other`` to this one."""
        self.steps += other.steps
        for name in ("declared", "resolved", "fence", "reasons", "downgrades"):
            getattr(self, name).update(getattr(other, name))
        self.slack_us.extend(other.slack_us)
        self.wait_us.extend(other.wait_us)


class Summary(Observer):
    """Adds up finished steps by (mode, backend)."""

    def __init__(self) -> None:
        self.modes: defaultdict[tuple[str, str], ModeSummary] = defaultdict(ModeSummary)

        self.phases: Counter[tuple[str, Phase]] = Counter()
        """Phases by the mode of their step."""

    def step_finished(self, record: StepRecord) -> None:
        """Count it."""
        self.modes[record.mode.value, record.backend].add(record)
        for phase in record.phases:
            self.phases[record.mode.value, phase] += 1

    def total(self) -> ModeSummary:
        """All modes together."""
        total = ModeSummary()
        for mode in self.modes.values():
            total.merge(mode)
        return total

    def by_mode(self) -> dict[str, ModeSummary]:
        """Backends of one mode together."""
        modes: defaultdict[str, ModeSummary] = defaultdict(ModeSummary)
        for (mode, _), summary in self.modes.items():
            modes[mode].merge(summary)
        return dict(modes)


def percentile(values: Sequence[float], share: float) -> float | None:
    """The value below which ``share`` of ``values`` lie (nearest rank); None for an empty sequence."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, ceil(share * len(ordered)) - 1)]


def percentiles(values: Sequence[float]) -> dict[str, float | None]:
    """p50, p90, p99 and the maximum."""
    return {
        "p50": percentile(values, 0.5),
        "p90": percentile(values, 0.9),
        "p99": percentile(values, 0.99),
        "max": max(values, default=None),
    }
