"""What a page is made of, whatever it was read from. All durations and moments are in µs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sglang_fence.contract import FenceKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

HOST, SCHEDULE, FORWARD = "host", "schedule", "forward"
TRACKS = {HOST: "Host", SCHEDULE: "Schedule stream", FORWARD: "Forward stream"}
"""The rows of a timeline, from above, with their titles."""


SETTINGS = {"device": "device", "gpu": "GPU", "clock": "clock", "model": "model", "dtype": "data type"}
"""What makes figures of two runs comparable, with its name."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One number or word about the whole run."""

    key: str
    """Its name in the JSON that it comes from."""

    label: str
    value: str | int | float | None
    """None: not measured."""


@dataclass(frozen=True, slots=True)
class ModeRow:
    """Steps of one forward mode. Percentiles are None where nothing was measured."""

    mode: str
    steps: int
    fence: Mapping[str, int]
    ends: str
    """Where reads ended, as resolved, with counts where there are several."""

    slack_p50: float | None
    slack_p99: float | None
    wait_p50: float | None
    wait_p99: float | None
    lost_us: float | None
    """Lost time; in a capture, lost slack."""


@dataclass(frozen=True, slots=True)
class Fallback:
    """Coarse steps of one mode and reason, with what they cost."""

    mode: str
    reason: str
    expected: bool | None
    """Whether the contract expects it; None where the reason isn't known."""

    steps: int
    lost_us: float | None
    """None where it was measured on none of them; likewise the lost slack."""

    lost_from: int
    """Steps on which it was measured."""

    lost_slack_us: float | None
    lost_slack_from: int


@dataclass(frozen=True, slots=True)
class StepRow:
    """One step."""

    index: int
    """Its place in what it was read from."""

    number: int | None
    mode: str
    fence: str
    reason: str | None
    ends: str | None
    slack: float | None
    wait: float | None
    forward: float | None
    lost: float | None
    """Lost time; in a capture, which doesn't show that, lost slack."""

    @property
    def fine(self) -> bool:
        """Whether its fence was fine."""
        return self.fence == FenceKind.FINE

    @property
    def coarse(self) -> bool:
        """Whether its fence was coarse."""
        return self.fence == FenceKind.COARSE

    @property
    def name(self) -> str:
        """What the page calls it."""
        return f"step {self.number}" if self.number is not None else f"the {self.index + 1}. step"


@dataclass(frozen=True, slots=True)
class Block:
    """A stretch of a timeline."""

    track: str
    name: str
    start: float
    end: float
    category: str
    """Of the catalogue's, which has a colour; ``unlisted`` where it has none."""

    detail: str = ""
    elsewhere: bool = False
    """Whether it belongs to another step."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """One step, drawn. Moments are from the timeline's beginning."""

    step: StepRow
    length: float
    blocks: tuple[Block, ...]
    waited_from: float | None = None
    """A: the schedule stream comes to the wait."""

    reads_end: float | None = None
    """R: what the fence is bound to; behind a coarse fence the forward's end."""

    reads_end_latest: float | None = None
    """When R had passed at the latest, where a capture shows its moment only as lying between two."""

    forward_end: float | None = None
    """F."""


@dataclass(frozen=True, slots=True)
class RunFacts:
    """A run, as a page shows it."""

    title: str
    kind: str
    """What it was read from, in words."""

    figures: tuple[Figure, ...]
    fence: Mapping[str, int]
    modes: tuple[ModeRow, ...]
    fallbacks: tuple[Fallback, ...]
    steps: tuple[StepRow, ...]
    """Steps whose durations are known."""

    candidates: tuple[StepRow, ...]
    """Steps of which a timeline can be drawn."""

    draw: Callable[[Sequence[StepRow]], list[Timeline]] = field(repr=False)
    sums: str
    """What sums of lost time, or of lost slack, stand for; in sentences."""

    setting: Mapping[str, str] = field(default_factory=dict[str, str])
    """What another run has to have in common with it, to be compared: of :data:`SETTINGS` what is known."""

    lost_means: str = "lost time"
    notes: tuple[str, ...] = ()
    """What is inferred, missing or left out, in sentences."""

    @property
    def fenced(self) -> bool:
        """Whether any step was held back by a fence."""
        return bool(self.fence.get(FenceKind.FINE) or self.fence.get(FenceKind.COARSE))

    @property
    def tokens_per_s(self) -> float | None:
        """Its throughput, where it is known."""
        found = [one.value for one in self.figures if one.key == "tokens_per_s" and isinstance(one.value, (int, float))]
        return found[0] if found else None
