"""``OverlapLoop``: an overlap scheduler cut down to what the fence sees, with steps as long as they are asked to be.

Schedule-stream work, a launch behind it, the barrier, and the results of the step before: the order of the scheduler,
with its own graph, publisher, barrier and probe. The model is replaced by kernels of known length, so that the loop is
bound by the device where a tiny model would be bound by the host.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sglang_fence.bench.spinning import host_work
from sglang_fence.contract import ForwardMode, SharedReadEnds
from sglang_fence.engine.observation import make_probe
from sglang_fence.fence.barrier import FencePolicy, WarBarrier
from sglang_fence.fence.events import EventPool, Marker
from sglang_fence.fence.publication import Mailbox, Publisher, resolve
from sglang_fence.graphs.full import FullGraph
from sglang_fence.graphs.parts import Part
from sglang_fence.observe.record import Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sglang_fence.device.cuda_spinning import Spinner
    from sglang_fence.device.protocol import DeviceModule, Event, Stream
    from sglang_fence.observe.flight.ring import FlightRing
    from sglang_fence.observe.observer import Observer
    from sglang_fence.observe.sampling import Sampling

_IN_FLIGHT = 2


@dataclass(frozen=True, slots=True)
class StepShape:
    """How long the parts of a step take, in µs: on the device, but for the last."""

    reads_us: float = 20.0
    """Metadata preparation, up to where the shared reads end."""
    compute_us: float = 230.0
    """The forward behind it."""
    schedule_us: float = 30.0
    """Preparation on the schedule stream."""
    after_us: float = 0.0
    """What the forward stream does behind the replay: sampling, and copying the tokens to the host."""
    prepare_us: float = 0.0
    """The host's own preparation, before it launches that on the schedule stream."""

    @property
    def forward_us(self) -> float:
        """The whole step on the forward stream."""
        return self.reads_us + self.compute_us + self.after_us


class OverlapLoop:
    """Runs steps; reusable.

    Args:
        device: where.
        spinner: makes kernels of known length.
        shape: of a step.
        fence: ``fine``, ``coarse`` or ``off``.
        observers: who hears of it.
        sampling: which steps are timed and traced.
        streams: schedule and forward stream; None: its own. Loops that are compared share theirs, so that all are
            served by the same hardware queues.
        ends: what the step declares. PRE_REPLAY reads before its replay, the others inside the graph; only
            IN_REPLAY plants a marker.
        ring: the flight recorder's; None: there is none.
    """

    def __init__(  # noqa: PLR0913 - what a loop consists of, and who looks on
        self,
        device: DeviceModule,
        spinner: Spinner,
        shape: StepShape,
        fence: str,
        observers: Sequence[Observer] = (),
        sampling: Sampling | None = None,
        streams: tuple[Stream, Stream] | None = None,
        *,
        ends: SharedReadEnds = SharedReadEnds.IN_REPLAY,
        ring: FlightRing | None = None,
    ) -> None:
        self._device = device
        self.schedule, self.forward = streams or (device.Stream("schedule"), device.Stream("forward"))
        self.probe = make_probe(device, observers, sampling, self.forward, self.schedule, ring)
        pool = EventPool(device)
        self._mailbox = Mailbox(pool)
        self._publisher = Publisher(self._mailbox, pool)
        policy = FencePolicy(fence != "off", fence == "coarse", f"--fence {fence}")
        barrier = WarBarrier(device, self.schedule, policy, pool, self.probe)
        self._read, self._compute = spinner(shape.reads_us), spinner(shape.compute_us)
        self._prepare = spinner(shape.schedule_us) if shape.schedule_us else None
        self._after = spinner(shape.after_us) if shape.after_us else None
        self._host_work = host_work(device, shape.prepare_us)
        self._graph = self._capture(ends)
        resolved = resolve(ends, self._graph.in_graph_metadata_prep_done)
        self._ends = resolved.ends
        self._phase = Phase(ForwardMode.DECODE, "target", "bench", ends, resolved.ends, resolved.downgrade)
        self._in_flight: deque[Event] = deque()
        self.steps = 0
        around = self.probe.around
        self._plan = self.probe.around_preparation(self._plan_step)
        self._launch = around("launch", self._launch_step)
        self._replay = around("replay", self._graph.replay)
        self._publish = around("publish", self._publish_step)
        self._fence = around("barrier", barrier.apply)
        self._results = around("process_results", self._process)

    # What the barrier asks of a worker.

    @property
    def last_shared_read_mailbox(self) -> Mailbox:
        """The one mailbox."""
        return self._mailbox

    @property
    def mailboxes(self) -> tuple[Mailbox, ...]:
        """All of them."""
        return (self._mailbox,)

    def is_last_shared_read_phase(self, mode: ForwardMode) -> bool:
        """A step has one phase."""
        return mode is ForwardMode.DECODE

    def run(self, steps: int, on_step: Callable[[int, int], None] = lambda _busy, _results: None) -> None:
        """Run so many steps and wait for them.

        Args:
            steps: how many.
            on_step: called behind each step with the nanoseconds that the host was busy in it, blocking left out, and
                the moment at which it had the results of the step before in hand (the host's clock, in ns).
        """
        with self._device.stream(self.schedule):
            for _ in range(steps):
                self._step(on_step)
        self._device.synchronize()
        self._in_flight.clear()
        if self.probe.on:
            self.probe.idle()
            self.probe.flush()

    def _step(self, on_step: Callable[[int, int], None]) -> None:
        device, probe, step = self._device, self.probe, self.steps
        self.steps += 1
        began = device.host_ns()
        self._plan(step)
        if probe.on:
            probe.step_started(step, ForwardMode.DECODE, "bench", 32, 32)
        self.forward.wait_stream(self.schedule)
        with device.stream(self.forward):
            if probe.timing:
                probe.forward_started(self.forward)
            done = self._launch(step)
        if probe.timing and probe.recording:
            probe.launched()
        self._in_flight.append(done)
        self._fence(step, self, self.forward)
        busy = device.host_ns() - began
        if len(self._in_flight) == _IN_FLIGHT:
            self._in_flight.popleft().synchronize()
        results = device.host_ns()
        self._results(step)
        if probe.on and probe.pending:
            probe.drain()
        on_step(busy + device.host_ns() - results, results)

    def _plan_step(self, _step: int) -> None:
        self._host_work()
        if self._prepare is not None:
            self._device.launch("bench_schedule", self._prepare)

    def _launch_step(self, step: int) -> Event:
        if self.probe.on:
            self.probe.resolved(self._phase)
        if self._ends is SharedReadEnds.PRE_REPLAY:
            self._device.launch("bench_reads", self._read)
            self._publish(step)
            self._replay()
        else:
            self._replay()
            self._publish(step)
        if self._after is not None:
            self._device.launch("bench_after", self._after)
        lent = self.probe.end_event() if self.probe.timing else None
        done: Event = lent or self._device.Event()
        done.record(self.forward)
        return done

    def _publish_step(self, step: int) -> None:
        marker = self._graph.in_graph_metadata_prep_done
        if self._ends is SharedReadEnds.PRE_REPLAY:
            self._publisher.pre_replay(step, ForwardMode.DECODE)
        elif marker is None:
            self._publisher.post_replay(step, ForwardMode.DECODE)
        else:
            self._publisher.in_replay(step, ForwardMode.DECODE, marker)

    def _process(self, _step: int) -> None:
        """Results cost nothing here."""

    def _capture(self, ends: SharedReadEnds) -> FullGraph:
        device, planted = self._device, list[Marker | None]()
        parts = [Part(lambda: device.launch("bench_compute", self._compute))]
        if ends is SharedReadEnds.IN_REPLAY:
            parts.insert(0, Part(lambda: planted.append(Marker.plant(device))))
        if ends is not SharedReadEnds.PRE_REPLAY:
            parts.insert(0, Part(lambda: device.launch("bench_reads", self._read)))
        with device.stream(self.forward):
            graph = FullGraph(device, "bench", parts, lambda: planted[-1] if planted else None)
        device.synchronize()
        return graph
