"""Which of the observer's events the host recorded when what they stand behind had passed already, and what follows.

An event reads no earlier than the host records it. While the host is ahead of the device, an event behind work reads
when the work ends; while it is behind, the event reads when the host came to it, and what is taken for a moment of the
device is one of the host. Under a tool that slows the host down this is no exception. So each of the four events of a
step is judged by the call that recorded it, which the tool traces:

* F, the forward's end, was recorded in time if the call was over before the forward ended;
* R, the copy of the marker's moment, if it was over before the node ahead of the marker had ended, and late if it
  began when the node behind the marker had begun; in between nobody can tell;
* A and G, likewise, by what their streams had done.

Where a record came late, the capture's moment is put to where the event can be at the earliest: the call's beginning,
and what an event on an idle stream takes from there, which was calibrated. If lateness is all that the two accounts
differ by, they then agree.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from tests.analyze.making.differing import differences, spread
from tests.analyze.making.host_calls import HostCall

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sglang_fence.analyze.steps import Step
    from tests.analyze.making.witnessing import Sight, Witnessed

IN_TIME, LATE, UNSURE, UNKNOWN = "in_time", "late", "unsure", "unknown"

Pair = tuple["Mapping[str, Any]", "Witnessed", "Step | None"]
"""A step in the observer's record, in the capture, and in the capture's analysis."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was measured before the run, in µs."""

    witness_us: float
    """How late the witness's kernel starts behind work."""

    record_us: float | None
    """How late an event on an idle stream reads after its call began; None: not measured."""

    offsets: Mapping[str, float]
    """What the observer takes off what it copied; see ``Offsets``."""

    @staticmethod
    def of(sight: Sight, told: Mapping[str, Any]) -> Calibration:
        """Put together what the capture shows and what ``serve`` wrote down."""
        late = sight.late_ns
        return Calibration(
            median(late) / 1e3 if late else 0.0,
            _median_or_none(late_records(sight, told)),
            told.get("offsets") or {},
        )


def late_records(sight: Sight, told: Mapping[str, Any]) -> list[float]:
    """Return how late each calibrated record read after its call began, in µs; empty where the two don't match."""
    read, calls = told.get("late_record_us") or [], sight.late_records
    if len(read) != len(calls):
        return []
    return [us - (call.start - end) / 1e3 for us, (end, call) in zip(read, calls, strict=True)]


def lateness(pairs: Sequence[Pair], known: Calibration) -> dict[str, Any]:
    """Return what was recorded in time, and how the accounts differ once what came late is taken for late."""
    judged = [_Judged(row, one, step, known) for row, one, step in pairs]
    whole = [one for one in judged if one.end == one.copy == one.witness == IN_TIME]
    return {
        "calls_traced": _share(one.seen.copy_call is not None for one in judged),
        "end_recorded": dict(Counter(one.end for one in judged)),
        "copy_recorded": dict(Counter(one.copy for one in judged)),
        "witness_launched": dict(Counter(one.witness for one in judged)),
        "wait_recorded": dict(Counter(one.wait for one in judged)),
        "forward_end_behind_its_record_us": _spread(one.end_ahead for one in judged),
        "copy_behind_marker_at_least_us": _spread(one.copy_behind for one in judged),
        "witness_call_behind_copy_call_us": _spread(one.witness_behind_copy for one in judged),
        "slack_observer_less_witness_when_all_in_time": _differences((one.slack, one.witness_slack) for one in whole),
        "wait_observer_less_witness_when_all_in_time": _differences((one.wait_us, one.witness_wait) for one in whole),
        "wait_the_same_from_the_observers_call": _differences((one.wait_us, one.called_wait) for one in whole),
        "slack_corrected_for_late_end_only": _differences((one.slack, one.end_corrected) for one in judged),
        "slack_corrected_for_late_records": _differences((one.slack, one.corrected) for one in judged),
        "slack_corrected_where_end_in_time_and_copy_late": _differences(
            (one.slack, one.corrected) for one in judged if (one.end, one.copy) == (IN_TIME, LATE)
        ),
        "slack_from_the_tools_own_events": _differences((one.slack, one.read_slack) for one in judged),
        "wait_from_the_tools_own_events": _differences((one.wait_us, one.read_wait) for one in judged),
        "slack_from_the_copys_call": _differences((one.slack, one.from_copy_call) for one in judged),
        "forward_corrected_for_late_records": _differences((one.forward, one.forward_corrected) for one in judged),
    }


class _Judged:
    """One step. Slacks and waits are in µs, and None where something that they need isn't known."""

    def __init__(self, row: Mapping[str, Any], seen: Witnessed, step: Step | None, known: Calibration) -> None:
        self.seen, self._step, self._known = seen, step, known
        self.slack: float = row["slack_us"]
        self.wait_us: float = row["wait_us"]
        self.forward: float | None = row["forward_us"]
        # Where the tool doesn't trace that call: F is recorded before the observer is told to wait.
        ended = HostCall(0, seen.copy_asked.start) if seen.copy_asked is not None else None
        self.end = _judge(seen.end_call or ended, seen.forward_end, seen.forward_end)
        before, behind = (None, None) if step is None else (step.reads_end, step.reads_end_latest)
        self.copy = _judge(seen.copy_call or seen.copy_asked, before, behind)
        self.witness = _judge(seen.witness_call, before, behind)
        self.wait = _judge(seen.wait_call, seen.idle, seen.idle)
        late = "marker_copy_us" if self.wait_us > 0.0 else "marker_copy_busy_us"
        self._taken_off = known.offsets.get(late, 0.0)

    @property
    def end_ahead(self) -> float | None:
        """How long before the forward's end its record was made; negative: how long behind."""
        call = self.seen.end_call
        return None if call is None else (self.seen.forward_end - call.end) / 1e3

    @property
    def copy_behind(self) -> float | None:
        """How long behind the node that stands behind the marker the copy's record was begun."""
        call, step = self.seen.copy_call or self.seen.copy_asked, self._step
        if call is None or step is None or step.reads_end_latest is None:
            return None
        return (call.start - step.reads_end_latest) / 1e3

    @property
    def witness_behind_copy(self) -> float | None:
        """How long behind the copy's record the witness was launched."""
        seen = self.seen
        if seen.copy_call is None or seen.witness_call is None:
            return None
        return (seen.witness_call.start - seen.copy_call.start) / 1e3

    @property
    def _marker(self) -> float | None:
        """When the marker passed, by the witness, in µs of the capture's clock."""
        return None if self.seen.began is None else self.seen.began / 1e3 - self._known.witness_us

    @property
    def witness_slack(self) -> float | None:
        """The forward's end less the witness's moment, whatever came late."""
        return _less(self.seen.forward_end / 1e3, self._marker)

    @property
    def witness_wait(self) -> float | None:
        """The witness's moment less when the fence's wait could begin."""
        return _not_negative(_less(self._marker, self.seen.waited_from / 1e3))

    @property
    def called_wait(self) -> float | None:
        """The same, from when the observer's own record before the wait could read."""
        called = self._recorded(self.seen.wait_call)
        return None if called is None else _not_negative(_less(self._marker, max(called, self.seen.idle / 1e3)))

    @property
    def end_corrected(self) -> float | None:
        """The witness's slack, if only F were late: to see whether that is the difference."""
        return _less(self._end, self._marker)

    @property
    def corrected(self) -> float | None:
        """The slack that an observer must read whose records were made by these calls."""
        if self.copy == LATE:
            copied = _less(self._recorded(self.seen.copy_call or self.seen.copy_asked), self._taken_off)
        else:
            copied = self._marker if self.copy == self.witness == IN_TIME else None
        return _not_negative(_less(self._end, copied))

    @property
    def read_slack(self) -> float | None:
        """F less R by the tool's own reading of the very events that the observer reads, with what it takes off."""
        return _not_negative(_less(_us(self.seen.end_read), self._copied))

    @property
    def read_wait(self) -> float | None:
        """R less A, likewise."""
        return _not_negative(_less(self._copied, _us(self.seen.wait_read)))

    @property
    def _copied(self) -> float | None:
        return _less(_us(self.seen.copy_read), self._taken_off)

    @property
    def from_copy_call(self) -> float | None:
        """The forward's end less the host's own moment of the copy, with nothing calibrated."""
        call = self.seen.copy_call or self.seen.copy_asked
        return None if call is None else (self.seen.forward_end - call.start) / 1e3

    @property
    def forward_corrected(self) -> float | None:
        """The forward from when the observer's first record of the step could read."""
        began = self._recorded(self.seen.start_call)
        return None if began is None else _less(self._end, max(began, self.seen.startable / 1e3))

    @property
    def _end(self) -> float | None:
        """When F can have been, in µs of the capture's clock."""
        if self.end == IN_TIME:
            return self.seen.forward_end / 1e3
        called = self._recorded(self.seen.end_call)
        return None if called is None else max(called, self.seen.forward_end / 1e3)

    def _recorded(self, call: HostCall | None) -> float | None:
        """When an event on an idle stream reads that was recorded by a call, in µs of the capture's clock."""
        return None if call is None or self._known.record_us is None else call.start / 1e3 + self._known.record_us


def _judge(call: HostCall | None, before: int | None, behind: int | None) -> str:
    if call is None or before is None or behind is None:
        return UNKNOWN
    if call.end <= before:
        return IN_TIME
    return LATE if call.start >= behind else UNSURE


def _us(ns: int | None) -> float | None:
    return None if ns is None else ns / 1e3


def _less(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other


def _not_negative(us: float | None) -> float | None:
    return None if us is None else max(0.0, us)


def _median_or_none(values: Sequence[float]) -> float | None:
    return median(values) if values else None


def _share(found: Iterable[bool]) -> float | None:
    values = list(found)
    return round(sum(values) / len(values), 4) if values else None


def _spread(values: Iterable[float | None]) -> dict[str, float] | None:
    return spread([value for value in values if value is not None])


def _differences(pairs: Iterable[tuple[float | None, float | None]]) -> dict[str, Any] | None:
    return differences((one, other) for one, other in pairs if one is not None and other is not None)
