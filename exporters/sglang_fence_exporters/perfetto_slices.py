"""What of a step is drawn: slices and marks with their details, all named by the catalogue."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sglang_fence import catalogue
from sglang_fence.catalogue import NVTX_RANGES, Category, Track, ends_label, spans
from sglang_fence.contract import SharedReadEnds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sglang_fence.catalogue import Attribute
    from sglang_fence.observe.record import Phase
    from sglang_fence.observe.trace import SpanTimes, StepTrace

STEP = "step"
SCHEDULE = "schedule"
BARRIER = "barrier"
BARRIER_WAIT = "barrier_wait"

READ_DONE = spans.BOUND_RECORD.name.removeprefix(f"{catalogue.SCOPE}.")
"""Name of the marks where the record was reached that let the barrier's wait go."""

CATEGORIES: dict[str, Category] = {
    **{one.name: one.category for one in NVTX_RANGES},
    # On the device, or above all ranges: NVTX, which knows ranges of the host alone, has no row for them.
    STEP: Category.FORWARD,
    BARRIER_WAIT: Category.BARRIER,
    READ_DONE: Category.PUBLISH,
}

Value = str | int | float | bool
Details = tuple[tuple["Attribute", Value], ...]


@dataclass(slots=True, eq=False)
class Slice:
    """A bar, or a mark without length, on a track. An arrow is a number: one slice has it leaving, another arriving."""

    track: Track
    name: str
    start_ns: int
    end_ns: int
    details: Details = ()
    mark: bool = False
    leaving: list[int] = field(default_factory=list[int])
    """Arrows that begin at its start."""
    arriving: list[int] = field(default_factory=list[int])
    """Arrows that end at its start."""

    @property
    def category(self) -> Category:
        """Its category in the catalogue."""
        return CATEGORIES[self.name]


def slices_of(trace: StepTrace) -> list[Slice]:
    """Return the step's slices, the step itself first, and its mark of read-done last where it has one.

    One whose ends are swapped, by the clock's error, has no length: a file with an end before its start can't be read.

    Raises:
        LookupError: a span isn't in the catalogue.
    """
    facts = _facts(trace, None)
    of_phases = [_facts(trace, phase) for phase in trace.phases]
    slices = [Slice(Track.STEP, STEP, trace.start_ns, max(trace.start_ns, trace.end_ns), _details(STEP, facts))]
    for one in trace.spans:
        known = facts if one.phase is None else of_phases[one.phase]
        end_ns = max(one.start_ns, one.end_ns)
        slices.append(Slice(one.track, one.name, one.start_ns, end_ns, _details(one.name, known, one)))
    if trace.released_ns is not None:
        at = trace.released_ns
        details = _chosen((spans.STEP, spans.FENCE_ATTRIBUTE, spans.REASON_ATTRIBUTE, spans.BOUND_RECORD), facts)
        slices.append(Slice(Track.FORWARD, READ_DONE, at, at, details, mark=True))
    return slices


def _facts(trace: StepTrace, phase: Phase | None) -> dict[Attribute, Value | None]:
    """Return the values of the catalogue's attributes, durations in seconds; None: it has none."""
    source = trace if phase is None else phase
    return {
        spans.STEP: trace.step,
        spans.MODE_ATTRIBUTE: source.mode.value,
        spans.BACKEND_ATTRIBUTE: source.backend,
        spans.RUNNER: None if phase is None else phase.role,
        spans.BATCH_SIZE: trace.batch_size,
        spans.TOKENS: trace.tokens,
        spans.DECLARED_ENDS: ends_label(source.declared),
        spans.RESOLVED_ENDS: ends_label(source.resolved),
        spans.FENCE_ATTRIBUTE: trace.fence.value,
        spans.REASON_ATTRIBUTE: None if trace.reason is None else trace.reason.value,
        spans.IN_GRAPH: source.resolved is SharedReadEnds.IN_REPLAY,
        spans.BOUND_RECORD: trace.bound_record,
        spans.SLACK: _seconds(trace.slack_us),
        spans.WAIT: _seconds(trace.wait_us),
        spans.LOST_SLACK: _seconds(trace.lost_slack_us),
        spans.LOST: _seconds(trace.lost_us),
        spans.FORWARD_GAP: _seconds(trace.gap_us),
        spans.GAP_LAST: trace.gap_last,
        spans.ASSUMED: None if trace.lost_slack_us is None else trace.assumed,
    }


def _seconds(us: float | None) -> float | None:
    return None if us is None else us / 1e6


def _details(name: str, facts: dict[Attribute, Value | None], one: SpanTimes | None = None) -> Details:
    details = _chosen(catalogue.span(name).attributes, facts)
    if one is not None and one.segment is not None:
        details += ((spans.SEGMENT_INDEX, one.segment),)
    return details


def _chosen(attributes: Sequence[Attribute], facts: dict[Attribute, Value | None]) -> Details:
    found = ((attribute, facts.get(attribute)) for attribute in attributes)
    return tuple((attribute, value) for attribute, value in found if value is not None)
