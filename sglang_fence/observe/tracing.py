"""``Tracer``: which steps are traced, and the ranges that are kept of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sglang_fence.contract import FenceKind
from sglang_fence.observe.marks import Marks

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglang_fence.observe.device_times import DeviceTimes
    from sglang_fence.observe.record import StepRecord
    from sglang_fence.observe.sampling import Sampler


class _Preparation(NamedTuple):
    """The host prepared a step."""

    step: int
    began_ns: int
    ended_ns: int
    behind: int | None
    """The step whose fence was the newest."""


class Tracer:
    """Decides at a step's start, before anything of it is written down."""

    def __init__(self, sampler: Sampler, now: Callable[[], int], times: DeviceTimes | None) -> None:
        self._sampler = sampler
        self._now = now
        self._times = times
        self._spare: list[Marks] = []
        self._prepared = self._prepared_before = _Preparation(-1, 0, 0, None)
        """The two newest: PD multiplexing prepares two steps before it launches either."""
        self.last_fenced: int | None = None
        """The newest step behind which a fence stood."""

    @property
    def on(self) -> bool:
        """Whether the next step may be traced."""
        return self._sampler.sampling.traces

    def prepared(self, step: int, began: int, ended: int) -> None:
        """Note when the host prepared ``step``, which may come to nothing."""
        if step != self._prepared.step:
            self._prepared_before = self._prepared
        self._prepared = _Preparation(step, began, ended, self.last_fenced)

    def choose(self) -> bool | None:
        """Decide about the next step: it is traced (True), may be if it is coarse (False), or isn't (None)."""
        if self._sampler.traces():
            return True
        return False if self._sampler.sampling.trace_coarse else None

    def begin(self, record: StepRecord, step: int, *, traced: bool) -> None:
        """Keep the ranges of ``step``, which is traced, or may be."""
        record.traced = traced
        record.is_written = True
        if traced and record.timers is not None:
            record.timed = True
        record.waited_for = self.last_fenced
        marks = record.marks = self._spare.pop() if self._spare else self._make()
        marks.reset()
        prepared = self._prepared if self._prepared.step == step else self._prepared_before
        if prepared.step == step:
            record.waited_for = prepared.behind
            record.started_ns = prepared.began_ns
            marks.add_host("schedule", prepared.began_ns, prepared.ended_ns)

    def keep_if_coarse(self, record: StepRecord) -> None:
        """Ranges were kept in case that the step is coarse. If it isn't, they are dropped."""
        if record.fence is FenceKind.COARSE:
            record.traced = record.is_written = True
            record.timed = record.timers is not None
        else:
            self.give_back(record)

    def give_back(self, record: StepRecord) -> None:
        """Take the ranges of a step that is over."""
        if record.marks is not None:
            self._spare.append(record.marks)
            record.marks = None

    def _make(self) -> Marks:
        return Marks(self._now, None if self._times is None else self._times.device)
