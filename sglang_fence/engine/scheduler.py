"""``Scheduler``: the overlap loop and the plain loop.

Overlap: while forward N runs on its stream, the host processes the results of N − 1 and prepares N + 1 on the schedule
stream. The barrier stands right after each launch (R7): everything that comes later in the iteration may write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.engine.lifetimes import StepLifetimes
from sglang_fence.errors import InternalError

if TYPE_CHECKING:
    from sglang_fence.device.protocol import DeviceModule, Stream
    from sglang_fence.engine.batch import ScheduledBatch
    from sglang_fence.engine.planner import Planner
    from sglang_fence.engine.results import ResultProcessor
    from sglang_fence.engine.worker import StepWorker
    from sglang_fence.fence.barrier import WarBarrier
    from sglang_fence.observe.probe import StepProbe


class Scheduler:
    """Drives one worker until its planner is idle."""

    def __init__(
        self,
        device: DeviceModule,
        schedule_stream: Stream,
        *,
        worker: StepWorker,
        planner: Planner,
        results: ResultProcessor,
        barrier: WarBarrier,
        probe: StepProbe,
    ) -> None:
        self._device = device
        self._schedule_stream = schedule_stream
        self._worker = worker
        self._planner = planner
        self._results = results
        self._barrier = barrier
        self._probe = probe
        self._run = probe.around("launch", worker.run)
        self._apply_barrier = probe.around("barrier", barrier.apply)
        self._process_results = probe.around("process_results", results.process)
        self._prepare_next = probe.around_preparation(planner.next_batch)
        self.lifetimes = StepLifetimes()
        self.steps = 0
        self.virtual_seconds: float | None = None
        """Serving time in the device's own virtual time; None where time is real."""

    @property
    def acceptance(self) -> float | None:
        """Share of drafts that verification accepted; None where nothing was drafted."""
        return self._results.accepted / self._results.drafted if self._results.drafted else None

    @property
    def retractions(self) -> int:
        """How often a request lost its memory for others to go on."""
        return self._planner.retractions

    def run(self, *, overlap: bool) -> None:
        """Serve all that waits, and return when the device is idle."""
        started = self._device.virtual_seconds()
        with self._device.stream(self._schedule_stream):
            self._event_loop(overlap=overlap)
        self._device.synchronize()
        ended = self._device.virtual_seconds()
        self.virtual_seconds = None if started is None or ended is None else ended - started
        self._reap()
        self._device.set_step(-1)
        if self._probe.on:
            self._probe.idle()

    def _event_loop(self, *, overlap: bool) -> None:
        if overlap:
            self._event_loop_overlap()
        else:
            self._event_loop_normal()

    def _event_loop_overlap(self) -> None:
        last: ScheduledBatch | None = None
        probe = self._probe
        while True:
            batch = self._next_batch()
            if batch is not None:
                self._launch(batch)
                self._apply_barrier(batch.work.step, self._worker, self._worker.forward_stream)
            elif probe.on:
                probe.idle()
            if last is not None:
                self._process(last)
            elif batch is None:
                break
            if probe.on and probe.pending:
                probe.drain()
            self._reap()
            last = batch
        self._check_all_served()

    def _event_loop_normal(self) -> None:
        while (batch := self._next_batch()) is not None:
            self._launch(batch)
            self._take_mailboxes()
            if self._probe.on:
                self._probe.no_barrier()
            self._process(batch)
            if self._probe.on and self._probe.pending:
                self._probe.drain()
            self._reap()
        self._check_all_served()

    def _next_batch(self) -> ScheduledBatch | None:
        self._device.set_step(self.steps)
        batch = self._prepare_next(self.steps)
        if batch is not None:
            self.steps += 1
        return batch

    def _launch(self, batch: ScheduledBatch) -> None:
        self._enqueue(batch, self._worker.forward_stream, self._worker.backend_name, self.lifetimes)

    def _enqueue(self, batch: ScheduledBatch, forward: Stream, backend: str, lifetimes: StepLifetimes) -> None:
        """Enqueue the step's forward behind its preparation, and keep what it uses until it ends (R12)."""
        work, probe = batch.work, self._probe
        if probe.on:
            probe.step_started(work.step, work.mode, backend, work.lines, work.new_tokens)
            if probe.traced:
                probe.link(batch.traceparents)
        forward.wait_stream(self._schedule_stream)
        with self._device.stream(forward):
            if probe.timing:
                probe.forward_started(forward)
            batch.result = self._run(work, batch.params)
        lifetimes.hold(batch.result.done, work.inputs, batch.params)
        if probe.timing and probe.recording:
            probe.launched()

    def _reap(self) -> None:
        self.lifetimes.reap()

    def _process(self, batch: ScheduledBatch) -> None:
        self._device.set_step(batch.work.step)
        self._process_results(batch)

    def _take_mailboxes(self) -> None:
        """This loop has no barrier; its mailboxes are emptied all the same (R11)."""
        self._barrier.discard(self._worker)

    def _check_all_served(self) -> None:
        if not self._planner.idle:
            left = len(self._planner.waiting) + len(self._planner.prefilling) + len(self._planner.running)
            msg = f"{left} requests are left, and none can be launched"
            raise InternalError(msg)
