"""``RunRecorder``: keeps the timed steps of a run, and some of its traces, for a file that can be read afterwards.

A step that is only counted costs one look here; a timed one is a tuple at the end of a bounded queue. Of the traced
steps a fair sample is kept, and the extremes besides: what a page that shows one step at a time wants to choose from.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from sglang_fence.observe.observer import Observer

if TYPE_CHECKING:
    from sglang_fence.contract import FallbackReason, FenceKind, ForwardMode, SharedReadEnds
    from sglang_fence.observe.record import StepRecord
    from sglang_fence.observe.trace import StepTrace

SCHEMA_NAME = "sglang-fence.record"
SCHEMA = f"{SCHEMA_NAME}/2"
"""First key of the file. The number rises when a key changes its meaning or goes."""

STEPS = 65_536
"""Timed steps kept, the newest of them: about 25 MB."""

TRACES = 128
"""Traced steps kept as a fair sample, the extremes not counted."""

_SEED = 65_536  # the same sample for the same run


class KeptStep(NamedTuple):
    """What is kept of a timed step, as in :class:`~sglang_fence.observe.record.StepRecord`. Durations in µs."""

    step: int
    mode: ForwardMode
    backend: str
    batch_size: int
    fence: FenceKind
    reason: FallbackReason | None
    ends: SharedReadEnds
    slack_us: float | None
    wait_us: float | None
    forward_us: float | None
    gap_us: float | None
    lost_slack_us: float | None
    lost_us: float | None


class RunRecorder(Observer):
    """Keeps steps.

    Args:
        steps: how many timed ones at the most; older ones make room.
        traces: how many traced ones at the most, beside the extremes.
    """

    def __init__(self, steps: int = STEPS, traces: int = TRACES) -> None:
        # Plain tuples, which take half the time to make; what is in them is a KeptStep's.
        self._steps: deque[tuple[object, ...]] = deque(maxlen=steps)
        self._timed = 0
        self._traces: list[StepTrace] = []
        self._most_traces = traces
        self._traced = 0
        self._random = Random(_SEED).randrange  # noqa: S311 - no secret
        self._extremes: dict[str, StepTrace] = {}

    def step_finished(self, record: StepRecord) -> None:
        """Keep it, if its device times were taken."""
        if not record.timed:
            return
        self._timed += 1
        self._steps.append(
            (
                record.step,
                record.mode,
                record.backend,
                record.batch_size,
                record.fence,
                record.reason,
                record.resolved,
                record.slack_us,
                record.wait_us,
                record.forward_us,
                record.gap_us,
                record.lost_slack_us,
                record.lost_us,
            ),
        )

    def step_traced(self, trace: StepTrace) -> None:
        """Keep it, as long as there is room; then it takes another's place, or not, so that the sample stays fair."""
        self._traced += 1
        if len(self._traces) < self._most_traces:
            self._traces.append(trace)
        else:
            place = self._random(self._traced)
            if place < self._most_traces:
                self._traces[place] = trace
        self._keep_extreme("slack", trace.slack_us, trace)
        self._keep_extreme("wait", trace.wait_us, trace)
        self._keep_extreme("lost", trace.lost_us, trace)

    def _keep_extreme(self, of: str, value: float | None, trace: StepTrace) -> None:
        best = self._extremes.get(of)
        if value and (best is None or value > (getattr(best, f"{of}_us") or 0.0)):
            self._extremes[of] = trace

    def to_json(self) -> dict[str, Any]:
        """Return what was kept, as plain values; traces in the order of their steps, and their times in µs."""
        traces = {trace.step: trace for trace in (*self._traces, *self._extremes.values())}
        return {
            "timed_steps": self._timed,
            "kept_steps": len(self._steps),
            "traced_steps": self._traced,
            "steps": [_step_json(KeptStep._make(step)) for step in self._steps],
            "traces": [_trace_json(traces[step]) for step in sorted(traces)],
        }


def _step_json(step: KeptStep) -> dict[str, Any]:
    return step._asdict() | {"ends": step.ends.name}


def _trace_json(trace: StepTrace) -> dict[str, Any]:
    zero = trace.start_ns

    def since(ns: int | None) -> float | None:
        return None if ns is None else round((ns - zero) / 1e3, 3)

    return {
        "step": trace.step,
        "mode": trace.mode,
        "backend": trace.backend,
        "batch_size": trace.batch_size,
        "tokens": trace.tokens,
        "fence": trace.fence,
        "reason": trace.reason,
        "declared": trace.declared.name,
        "resolved": trace.resolved.name,
        "slack_us": trace.slack_us,
        "wait_us": trace.wait_us,
        "forward_us": trace.forward_us,
        "lost_slack_us": trace.lost_slack_us,
        "lost_us": trace.lost_us,
        "released_us": since(trace.released_ns),
        "clock_error_us": round(trace.error_ns / 1e3, 3),
        "spans": [
            {
                "name": span.name,
                "track": span.track,
                "start_us": since(span.start_ns),
                "end_us": since(span.end_ns),
                "segment": span.segment,
            }
            for span in trace.spans
        ],
    }
