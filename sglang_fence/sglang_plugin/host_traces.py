"""Traces of sampled steps where there are no device times: what the host did, and nothing else."""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING

from sglang_fence.observe.assembly import assemble
from sglang_fence.observe.clock import DeviceClock
from sglang_fence.observe.durations import Moments
from sglang_fence.observe.moments import OneByOne
from sglang_fence.observe.observer import Observer

if TYPE_CHECKING:
    from sglang_fence.observe.observer import Observers
    from sglang_fence.observe.record import StepRecord


class HostEvent:
    """A moment of the host: where work is done as it is enqueued, there is no other."""

    def __init__(self) -> None:
        self._at_ns = 0

    def record(self, _: object, /) -> None:
        """Note the moment."""
        self._at_ns = perf_counter_ns()

    def elapsed_us(self, end_event: HostEvent, /) -> float | None:
        """Return the µs to ``end_event``."""
        return (end_event._at_ns - self._at_ns) / 1e3


class Host(OneByOne):
    """The host, as what a clock is made of."""

    def timed_event(self) -> HostEvent:
        """Make an event."""
        return HostEvent()

    def as_event(self, timed: HostEvent, /) -> None:
        """Nothing on the host is recorded for two."""

    def host_ns(self) -> int:
        """Real time."""
        return perf_counter_ns()

    def is_capturing(self) -> bool:
        """Nothing is captured."""
        return False


class HostTraces(Observer):
    """Puts a trace together when a sampled step is finished, and tells the observers behind it."""

    def __init__(self) -> None:
        self.observers: Observers | None = None
        """Who hears of traces. Set once they are all made; this is one of them."""
        self._clock = DeviceClock(Host(), None, virtual=False)

    def step_finished(self, record: StepRecord) -> None:
        """Pass on its trace, if it was sampled."""
        if not record.traced or record.marks is None or self.observers is None:
            return
        trace = assemble(record, Moments(), record.marks.read(self._clock.read) or [], self._clock)
        for hook in self.observers.step_traced:
            hook(trace)
