"""What a span says about itself: the catalogue's attributes, filled from a :class:`StepTrace`. Knows no OpenTelemetry.

An attribute without a value on a step is left out. Which span may carry which attribute is the catalogue's business;
this module only knows where each value comes from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sglang_fence.catalogue import SPANS, Track, ends_label
from sglang_fence.catalogue import spans as names
from sglang_fence.contract import SharedReadEnds

if TYPE_CHECKING:
    from sglang_fence.catalogue import Attribute
    from sglang_fence.observe.record import Phase
    from sglang_fence.observe.trace import SpanTimes, StepTrace

Value = str | int | float | bool
"""What an attribute may hold."""

_OfStep = Callable[["StepTrace"], Value | None]
_OfPhase = Callable[["Phase"], Value | None]
_OfSpan = Callable[["SpanTimes"], Value | None]

STEP_SPAN = "step"


def _seconds(us: float | None) -> float | None:
    return None if us is None else us / 1_000_000


def _in_graph(ends: SharedReadEnds) -> bool | None:
    # The marker is a node of the graph, and the only event that is (R5). Unknown ends publish no event at all.
    return None if ends is SharedReadEnds.UNKNOWN else ends is SharedReadEnds.IN_REPLAY


_OF_STEP: dict[Attribute, _OfStep] = {
    names.STEP: lambda step: step.step,
    names.MODE_ATTRIBUTE: lambda step: step.mode.value,
    names.BACKEND_ATTRIBUTE: lambda step: step.backend,
    names.BATCH_SIZE: lambda step: step.batch_size,
    names.TOKENS: lambda step: step.tokens,
    names.DECLARED_ENDS: lambda step: ends_label(step.declared),
    names.RESOLVED_ENDS: lambda step: ends_label(step.resolved),
    names.DOWNGRADE: lambda step: step.downgrade,
    names.FENCE_ATTRIBUTE: lambda step: step.fence.value,
    names.REASON_ATTRIBUTE: lambda step: None if step.reason is None else step.reason.value,
    names.BOUND_RECORD: lambda step: step.bound_record,
    names.IN_GRAPH: lambda step: _in_graph(step.resolved),
    names.SLACK: lambda step: _seconds(step.slack_us),
    names.WAIT: lambda step: _seconds(step.wait_us),
    names.FORWARD: lambda step: _seconds(step.forward_us),
    names.LOST_SLACK: lambda step: _seconds(step.lost_slack_us),
    # Says how the lost slack was come by, so it means nothing without one.
    names.ASSUMED: lambda step: None if step.lost_slack_us is None else step.assumed,
    names.LOST: lambda step: _seconds(step.lost_us),
    names.FORWARD_GAP: lambda step: _seconds(step.gap_us),
    names.GAP_LAST: lambda step: step.gap_last,
    names.WAITED_FOR: lambda step: step.waited_for,
    names.CLOCK_ERROR: lambda step: step.error_ns / 1_000_000_000,
}

# These are the phase's own where a span belongs to one; else the step's, if it has them.
_OF_PHASE: dict[Attribute, _OfPhase] = {
    names.MODE_ATTRIBUTE: lambda phase: phase.mode.value,
    names.BACKEND_ATTRIBUTE: lambda phase: phase.backend,
    names.RUNNER: lambda phase: phase.role,
    names.DECLARED_ENDS: lambda phase: ends_label(phase.declared),
    names.RESOLVED_ENDS: lambda phase: ends_label(phase.resolved),
    names.DOWNGRADE: lambda phase: phase.downgrade,
    names.IN_GRAPH: lambda phase: _in_graph(phase.resolved),
}

_OF_SPAN: dict[Attribute, _OfSpan] = {
    names.TRACK: lambda span: span.track.value,
    names.SEGMENT_INDEX: lambda span: span.segment,
}


class _Plan:
    """Where the values of one span's attributes come from, looked up once."""

    def __init__(self, attributes: tuple[Attribute, ...]) -> None:
        self.of_span = [(row.name, _OF_SPAN[row]) for row in attributes if row in _OF_SPAN]
        self.of_step = [(row.name, _OF_STEP[row]) for row in attributes if row in _OF_STEP]
        self.of_step_alone = [(row.name, _OF_STEP[row]) for row in attributes if row in _OF_STEP.keys() - _OF_PHASE]
        self.of_phase = [(row.name, _OF_PHASE[row]) for row in attributes if row in _OF_PHASE]


_PLANS = {row.name: _Plan(row.attributes) for row in SPANS}


def step_attributes(trace: StepTrace) -> dict[str, Value]:
    """Return the attributes of the step's own span, by name."""
    filled: dict[str, Value] = {names.TRACK.name: Track.STEP.value}
    for name, read in _PLANS[STEP_SPAN].of_step:
        value = read(trace)
        if value is not None:
            filled[name] = value
    return filled


def span_attributes(trace: StepTrace, span: SpanTimes) -> dict[str, Value]:
    """Return the attributes of ``span``, which lies below the step, by name.

    Raises:
        KeyError: the catalogue has no span of that name.
        IndexError: the step has no such phase.
    """
    plan = _PLANS[span.name]
    filled: dict[str, Value] = {}
    phase = None if span.phase is None else trace.phases[span.phase]
    for name, read in plan.of_step if phase is None else plan.of_step_alone:
        value = read(trace)
        if value is not None:
            filled[name] = value
    if phase is not None:
        for name, read_phase in plan.of_phase:
            value = read_phase(phase)
            if value is not None:
                filled[name] = value
    for name, read_span in plan.of_span:
        value = read_span(span)
        if value is not None:
            filled[name] = value
    return filled
