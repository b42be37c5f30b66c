"""Which steps are more than counted, decided as they begin; and what the probe costs."""

from __future__ import annotations

from math import inf
from time import perf_counter_ns
from typing import TYPE_CHECKING

from sglang_fence.observe.ranging import Ranging
from sglang_fence.observe.sampling import STARTED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sglang_fence.observe.device_times import DeviceTimes
    from sglang_fence.observe.ledger import Health
    from sglang_fence.observe.observer import Observers
    from sglang_fence.observe.quickening import Quickening
    from sglang_fence.observe.reading import Reader
    from sglang_fence.observe.record import StepRecord
    from sglang_fence.observe.sampling import Sampler, Sampling

_NEVER = 1 << 62
"""A step that isn't reached."""

METER_EVERY = 17
"""The probe takes its own cost on each so-many-th step, and counts it so many times: no common factor with timing."""


class Choosing(Ranging):
    """The part of a probe that says which record carries a step."""

    health: Health
    observers: Observers
    sampling: Sampling
    timing: bool
    _due: float
    _full_next: bool
    _light: Sequence[StepRecord]
    _lights: int
    _looks: bool
    _meter_ns: int
    _metered: bool
    _newest: int
    _quick: Quickening | None
    _reader: Reader
    _record: StepRecord
    _sampler: Sampler
    _since: int
    _times: DeviceTimes | None

    @property
    def due(self) -> int:
        """The first step from here on that may be more than counted."""
        return _NEVER if self._due == inf else int(self._due)

    @property
    def due_beyond_slack(self) -> tuple[int, int]:
        """The first step from here on of which more may be asked than slack and wait; and each so-many-th has these.

        0 in the place of the latter: none has, before the former.
        """
        every, times = self.sampling.timing_every, self._times
        if times is None or every == 0 or self._full_next:
            return self.due, 0
        return self._sampler.next_start(self._record.step), every

    def counts_alone(self, ledger: object) -> bool:
        """Whether nobody hears of a step that is neither traced nor coarse, but for the ``ledger``."""
        heard = self.observers
        return (
            [getattr(hook, "__self__", None) for hook in heard.finishing] == [ledger]
            and not self.sampling.trace_coarse
            and not (heard.step_started or heard.barrier_applied or heard.range_started or heard.range_ended)
        )

    def only_counts(self, ledger: object) -> bool:
        """Whether nobody hears of a step that is only counted, but for the ``ledger``; and none is traced."""
        return not self.sampling.traces and self.counts_alone(ledger)

    def _plan(self, step: int) -> None:
        """Decide which step to look at next, behind ``step``."""
        sampling = self.sampling
        if not self._looks:
            self._due = inf
        elif sampling.timing_every == 1 or sampling.traces:
            self._due = step + 1
        else:
            self._due = self._sampler.next_due(step)

    def _choose(self, step: int) -> StepRecord:
        """Return the record for a step that is due: one of its own, if it is more than counted."""
        times, sampling = self._times, self.sampling
        traces = sampling.trace_ratio > 0.0 or sampling.trace_coarse  # as Sampling.traces, and a call less
        if self._looks and (traces or sampling.timing_every == 1):
            self._due = step + 1
        else:
            self._plan(step)
        traced: bool | None = None
        if traces:
            traced = self._choose_traced(step)
        asked = 0 if times is None else self._sampler.asks(step)
        in_turn = asked > 0
        if traced is None and not in_turn and not self._full_next and not self._wants_end_before(step + 1):
            self.timing = False
            return self._light[step % self._lights]
        record = self._reader.take()
        record.begin()
        record.started_ns = self._now()
        self.timing, self._full_next = True, False
        if step != self._newest + 1:
            self._since = step
        self._newest = step
        record.timed = in_turn
        if times is not None:
            record.weight = sampling.timing_every if in_turn else 0
            if traced is not None or asked == STARTED:
                record.wants_start = True
                self._reader.renew_clock()
        if traced is not None:
            self._tracer.begin(record, step, traced=traced)
        return record

    def _choose_traced(self, step: int) -> bool | None:
        """As :meth:`~sglang_fence.observe.tracing.Tracer.choose`, with what went by since it was asked last."""
        if self._quick is not None:
            self._sampler.pass_by(self._quick.passed(step))
        return self._tracer.choose()

    def _wants_end_before(self, step: int) -> bool:
        """Whether the gap before ``step`` is taken, and so where it begins."""
        return self._times is not None and self._sampler.asks(step) == STARTED

    def _meter(self, hook: str, began: int, ended: int) -> None:
        self.health.cost_ns[hook] += METER_EVERY * max(0, ended - began - self._meter_ns)


def meter_cost_ns() -> int:
    """How long the meter's own clock takes, in ns: taken off."""
    now = perf_counter_ns
    return min(-(now() - now()) for _ in range(50))
