"""``PDMuxScheduler``: PD multiplexing. A prefill and a decode run at once, on streams of their own.

Each launch is a step: with its own stream, a barrier right behind it (R7) against that stream, and results that are
processed when they are there. The host blocks only when it has nothing to launch and nothing to process.

What a single forward stream orders for free has to be ordered here, on the device (:meth:`PDMuxScheduler._order`): a
launch waits for the ends of those steps on other streams with which its footprint conflicts, and for no other.

| conflict | with |
|---|---|
| a request joins decode: its keys, values and first token | its prefill |
| decode goes on in the other group | the decode before |
| pages or a row that a finished or retracted request gave back | the decode that still has a line for it |
| the like by way of prefix cache or sliding window | whoever still reads them |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sglang_fence.contract import ForwardMode
from sglang_fence.engine.footprint import Footprint
from sglang_fence.engine.lifetimes import StepLifetimes
from sglang_fence.engine.scheduler import Scheduler
from sglang_fence.runners.stream_groups import ALONE, BESIDE_PREFILL

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglang_fence.device.protocol import DeviceModule, Event, Stream
    from sglang_fence.engine.batch import ScheduledBatch
    from sglang_fence.engine.pdmux_planner import PDMuxPlanner
    from sglang_fence.engine.requests import Request
    from sglang_fence.memory.kv_pool import PagedKV
    from sglang_fence.runners.stream_groups import StreamGroups

IN_FLIGHT = 2
"""Steps of a kind, prefill or decode, in flight at the most: one that runs, and one behind it."""


@dataclass(frozen=True, slots=True, eq=False)
class Flight:
    """A step that is launched and whose results aren't processed."""

    batch: ScheduledBatch
    stream: Stream
    footprint: Footprint
    done: Event
    """Recorded behind all of the step's forward work."""

    @property
    def mode(self) -> ForwardMode:
        """Prefill or decode."""
        return self.batch.work.mode

    @property
    def requests(self) -> set[Request]:
        """Whom it serves."""
        return {lane.request for lane in self.batch.lanes}


class PDMuxScheduler(Scheduler):
    """Drives one worker on several forward streams until its planner is idle.

    Args:
        device: launches.
        schedule_stream: where steps are prepared.
        planner: prepares prefills and decodes apart.
        groups: the decode streams; the prefill stream is the worker's own.
        kv: pages, for the footprints.
        others: as for the base.
    """

    def __init__(
        self,
        device: DeviceModule,
        schedule_stream: Stream,
        *,
        planner: PDMuxPlanner,
        groups: StreamGroups,
        kv: PagedKV,
        **others: Any,  # noqa: ANN401 - what the base takes
    ) -> None:
        super().__init__(device, schedule_stream, planner=planner, **others)
        self._pd_planner = planner
        self._groups = groups
        self._kv = kv
        self._flights: list[Flight] = []
        # One a stream: a long prefill must not hold back what younger decodes are done with (R12).
        streams = (*groups.streams, self._worker.forward_stream)
        self._next_decode = self._probe.around_preparation(self._plan_decode)
        self._next_extend = self._probe.around_preparation(planner.next_extend)
        self._lifetimes_of = {stream.name: StepLifetimes() for stream in streams}
        self.cross_stream_waits = 0
        """How often a forward stream waited for a step on another."""

    def _event_loop(self, *, overlap: bool) -> None:  # noqa: ARG002 - options without overlap are refused
        self._event_loop_pdmux()

    def _event_loop_pdmux(self) -> None:
        while True:
            launched = self._launch_more()
            processed = self._process_finished()
            if not launched and not processed:
                if not self._flights:
                    break
                self._process_in_order(self._next_to_finish())
            if self._probe.on and self._probe.pending:
                self._probe.drain()
            self._reap()
        self._check_all_served()

    def _launch_more(self) -> bool:
        """Launch a decode and a prefill, as far as there is room and work; return whether anything was launched.

        Both are prepared before either is launched: behind a prefill whose fence is coarse, the schedule stream stands
        still until its end. The decode goes first, so that this doesn't hold it back.
        """
        decode = self._plan(ForwardMode.DECODE, self._next_decode)
        prefill = self._plan(ForwardMode.EXTEND, self._next_extend)
        if decode is not None:
            beside = prefill is not None or bool(self._running(ForwardMode.EXTEND))
            self._groups.index = BESIDE_PREFILL if beside else ALONE
            group = self._groups.current
            self._launch_on(decode, group.stream, group.member.name)
        if prefill is not None:
            self._launch_on(prefill, self._worker.forward_stream, self._worker.backend_name)
        return decode is not None or prefill is not None

    def _plan(self, mode: ForwardMode, prepare: Callable[[int], ScheduledBatch | None]) -> ScheduledBatch | None:
        if sum(flight.mode is mode for flight in self._flights) >= IN_FLIGHT:
            return None
        self._device.set_step(self.steps)
        batch = prepare(self.steps)
        if batch is not None:
            self.steps += 1
        return batch

    def _plan_decode(self, step: int) -> ScheduledBatch | None:
        return self._pd_planner.next_decode(step, self._joining())

    def _launch_on(self, batch: ScheduledBatch, stream: Stream, backend: str) -> None:
        self._device.set_step(batch.work.step)
        footprint = Footprint.of(batch.work, self._kv)
        self._order(stream, footprint)
        self._enqueue(batch, stream, backend, self._lifetimes_of[stream.name])
        self._apply_barrier(batch.work.step, self._worker, stream)
        if batch.result is not None:
            self._flights.append(Flight(batch, stream, footprint, batch.result.done))

    def _order(self, stream: Stream, footprint: Footprint) -> None:
        """Let ``stream`` wait for the steps in flight on other streams that conflict with what it gets next.

        A finished step's results were waited for by the host, which orders all that it enqueues from then on.
        """
        settled = {stream.name}
        for flight in reversed(self._flights):
            if flight.stream.name in settled or not footprint.conflicts(flight.footprint):
                continue
            settled.add(flight.stream.name)  # older steps of that stream come before this one
            if not flight.done.query():
                stream.wait_event(flight.done)
                self.cross_stream_waits += 1

    def _reap(self) -> None:
        for lifetimes in self._lifetimes_of.values():
            lifetimes.reap()

    def _running(self, mode: ForwardMode) -> list[Flight]:
        return [flight for flight in self._flights if flight.mode is mode and not flight.done.query()]

    def _joining(self) -> set[Request]:
        """Requests whose prefill is launched and still runs."""
        return {request for flight in self._running(ForwardMode.EXTEND) for request in flight.requests}

    def _process_finished(self) -> bool:
        finished = [flight for flight in self._flights if flight.done.query()]
        for flight in finished:
            self._process_in_order(flight)
        return bool(finished)

    def _next_to_finish(self) -> Flight:
        """The step to block on: a decode, which is the shorter, unless there is none."""
        return next((flight for flight in self._flights if flight.mode is ForwardMode.DECODE), self._flights[0])

    def _process_in_order(self, flight: Flight) -> None:
        """Process a step's results, after those of older steps of the same requests: a token comes after its prefix.

        Those are finished as well, since the device ran this step behind them.
        """
        if flight not in self._flights:
            return  # it went before one that came earlier in the list
        for older in self._flights[: self._flights.index(flight)]:
            if older.requests & flight.requests:
                self._process_in_order(older)
        self._flights.remove(flight)
        self._process(flight.batch)
