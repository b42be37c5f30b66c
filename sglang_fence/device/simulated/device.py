"""The simulated device: a deterministic :class:`~sglang_fence.device.protocol.DeviceModule` in virtual time."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING

import torch

from sglang_fence.device.simulated.core import Core
from sglang_fence.device.simulated.costs import CostTable
from sglang_fence.device.simulated.graphs import Capture, LaunchNode, SimulatedGraph
from sglang_fence.device.simulated.streams import SimulatedEvent, SimulatedStream
from sglang_fence.device.simulated.timeline import PS_PER_US, to_us
from sglang_fence.errors import CaptureError
from sglang_fence.observe.device_times import Offsets
from sglang_fence.observe.moments import OneByOne

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from sglang_fence.device import protocol
    from sglang_fence.device.buffers import SharedBuffer
    from sglang_fence.device.simulated.accesses import Hazard, Op, Touch
    from sglang_fence.device.simulated.graphs import DeclaredRows
    from sglang_fence.device.simulated.ordering import Ordering
    from sglang_fence.observe.timing import TimedEvent

PS_PER_NS = PS_PER_US // 1000

_CPU = torch.device("cpu")


class SimulatedDevice(OneByOne):
    """A device whose kernels cost virtual time, run on the CPU, and are checked for hazards."""

    def __init__(
        self,
        costs: CostTable | None = None,
        *,
        check_hazards: bool = True,
        external_events: bool = True,
    ) -> None:
        """Make a device at virtual time 0, with one stream called ``default``.

        Args:
            costs: what kernels and host calls cost; None: the built-in table.
            check_hazards: whether accesses to shared buffers are checked for order, and orderings remembered.
            external_events: whether events can be nodes of graphs; False stands for devices that lack them.
        """
        self._costs = CostTable() if costs is None else costs
        self._core = Core(check_hazards=check_hazards)
        self._external_events = external_events
        self._buffer_ids = count()
        self._stream_names = {"default"}
        self._graph_names: set[str] = set()

    @property
    def name(self) -> str:
        """``simulated``."""
        return "simulated"

    @property
    def torch_device(self) -> torch.device:
        """Where tensors live: the CPU."""
        return _CPU

    @property
    def asynchronous(self) -> bool:
        """True: streams run apart from the host, in virtual time."""
        return True

    @property
    def now_us(self) -> float:
        """The host's virtual time in µs."""
        return to_us(self._core.timeline.now)

    def virtual_seconds(self) -> float:
        """The host's virtual time since the device was made, in seconds."""
        return self.now_us / 1e6

    @property
    def hazards(self) -> list[Hazard]:
        """The hazards so far, at most 1,000, in the order of their first, then their second access."""
        self._core.begin()
        checker = self._core.checker
        return [] if checker is None else checker.hazards

    @property
    def hazard_count(self) -> int:
        """How many hazards there were so far, stored or not."""
        self._core.begin()
        return 0 if self._core.checker is None else self._core.checker.count

    def watch(self, watcher: Callable[[Op, Sequence[Touch], Sequence[Touch]], None] | None) -> None:
        """Let ``watcher`` hear of each op from here on, with the rows that it reads and writes; None: nobody.

        Raises:
            ValueError: a device that doesn't check hazards.
        """
        if self._core.checker is None:
            msg = "accesses are looked at with check_hazards=True alone"
            raise ValueError(msg)
        self._core.checker.watcher = watcher

    def Event(self, *, enable_timing: bool = False, external: bool = False) -> SimulatedEvent:  # noqa: N802 - protocol's
        """Make an event.

        Raises:
            TypeError: an external one, on a device made without them.
        """
        if external and not self._external_events:
            msg = "this device has no external events"
            raise TypeError(msg)
        return SimulatedEvent(self._core, timed=enable_timing, external=external)

    def Stream(self, name: str, *, priority: int = 0) -> SimulatedStream:  # noqa: ARG002, N802 - protocol's
        """Make a stream. A name that is taken gets a number: ``forward``, ``forward_2``. Priorities have no effect."""
        return SimulatedStream(self._core, self._core.timeline.add_lane(_unique(name, self._stream_names)))

    def observer_stream(self, name: str) -> SimulatedStream:
        """Make a stream for observing: one like any other."""
        return self.Stream(name)

    def timed_event(self) -> SimulatedEvent:
        """Make a timing event for observing."""
        return SimulatedEvent(self._core, timed=True, external=False)

    def as_event(self, timed: TimedEvent) -> None:
        """None: asking a timing event orders nothing here, and what the runtime asks has to."""

    def host_ns(self) -> int:
        """Virtual time."""
        return self._core.timeline.now // PS_PER_NS

    def is_capturing(self) -> bool:
        """Whether any stream captures."""
        return self._core.capture is not None

    def calibrate(
        self,
        forward: protocol.Stream,  # noqa: ARG002 - nothing has to be measured
        schedule: protocol.Stream,  # noqa: ARG002 - as above
        observer: protocol.ObserverStream,  # noqa: ARG002 - as above
    ) -> Offsets:
        """Nothing is late here."""
        return Offsets()

    def Graph(self, name: str) -> SimulatedGraph:  # noqa: N802 - protocol's
        """Make an empty graph. A name that is taken gets a number."""
        return SimulatedGraph(self._core, _unique(name, self._graph_names))

    def current_stream(self) -> SimulatedStream:
        """The stream that launches and replays go to."""
        return self._core.current

    @contextmanager
    def stream(self, stream: protocol.Stream) -> Generator[None]:
        """Make ``stream`` current for the block."""
        core = self._core
        before = core.current
        core.current = core.own_stream(stream)
        try:
            yield
        finally:
            core.current = before

    @contextmanager
    def capture(self, graph: protocol.Graph) -> Generator[None]:
        """Record what the block launches on the current stream, and on streams forked from it, into ``graph``.

        Work on streams that have no part in the capture is enqueued as always. A block that raises leaves the graph
        empty.

        Raises:
            CaptureError: a capture is under way, the graph was captured before, or a side stream is left unjoined.
        """
        core = self._core
        core.begin()
        if not isinstance(graph, SimulatedGraph):
            msg = f"{graph!r} is no graph of the simulated device"
            raise TypeError(msg)
        core.refuse_capture(f"capture of graph {graph.name!r}")
        if graph.nodes is not None:
            msg = f"graph {graph.name!r} was captured before; make a new one"
            raise CaptureError(msg)
        capture = core.capture = Capture(graph, core.current)
        try:
            yield
            core.end_capture(capture)
        finally:
            core.capture = None

    def is_current_stream_capturing(self) -> bool:
        """Whether launches on the current stream are being recorded rather than run."""
        capture = self._core.capture
        return capture is not None and capture.owns(self._core.current)

    def launch(
        self,
        name: str,
        body: Callable[[], object],
        *,
        reads: Sequence[protocol.Access] = (),
        writes: Sequence[protocol.Access] = (),
    ) -> None:
        """Enqueue one kernel on the current stream; its cost is the table's, its body takes effect at its end.

        Bodies run when the host synchronises or learns by ``query()`` that work is done, up to the host's time, in
        the order of their ends; what one raises comes out of that call.
        """
        core = self._core
        core.begin()
        cost = self._costs.kernel(name)
        stream, capture = core.current, core.capture
        if capture is not None and capture.owns(stream):
            capture.launch(stream, name, cost, body, _by_id(reads), _by_id(writes))
        else:
            node = LaunchNode(0, name, 0, cost, body, _by_id(reads), _by_id(writes))
            core.enqueue(stream.lane, "", core.appearance(name), node)

    def host(self, name: str) -> None:
        """Let the host's time pass by what the table says of the call ``name``. Nothing else happens."""
        self._core.begin()
        self._core.timeline.advance(self._costs.host(name))

    def host_access(
        self,
        name: str,
        reads: Sequence[protocol.Access] = (),
        writes: Sequence[protocol.Access] = (),
    ) -> None:
        """Say that the host touches shared buffers itself, in the call ``name``; no time passes."""
        self._core.begin()
        self._core.host_access(name, _by_id(reads), _by_id(writes))

    def set_step(self, step: int) -> None:
        """Say which step the host works for from here on; reports name it. −1 for none."""
        self._core.begin()
        self._core.step = step

    def register_buffer(self, buffer: SharedBuffer) -> int:
        """Take a shared buffer up by name and rows, without keeping it alive; return its id."""
        buffer_id = next(self._buffer_ids)
        if self._core.checker is not None:
            self._core.checker.add_buffer(buffer_id, buffer.name, buffer.rows)
        return buffer_id

    def freed(self, buffer_id: int, stream: protocol.Stream) -> None:
        """Hear that a buffer's block went back to ``stream``'s allocator: a write to all its rows by ``free(NAME)``."""
        self._core.freed(buffer_id, stream)

    def check_access(self, buffer: SharedBuffer) -> None:
        """Hear that ``buffer.tensor`` is about to be used.

        Raises:
            UndeclaredAccessError: by a kernel that didn't declare it.
        """
        self._core.bodies.check(buffer)

    def synchronize(self) -> None:
        """Block the host until every stream is empty.

        Raises:
            CaptureError: a capture is under way.
        """
        core = self._core
        core.begin()
        core.refuse_capture("device.synchronize()")
        for lane in core.timeline.lanes[1:]:
            core.timeline.synchronize(core.timeline.tail(lane), ("wait_stream", None))
        core.bodies.run_until(core.timeline.now)

    def explain_order(self, first: str, second: str) -> Ordering | None:
        """Say which operation orders the kernel ``first`` before ``second``, by the names of reports; None: nothing.

        Raises:
            ValueError: a name that isn't among the newest kernels, or a device that doesn't check hazards.
        """
        self._core.begin()
        if self._core.checker is None:
            msg = "orderings are remembered with check_hazards=True alone"
            raise ValueError(msg)
        return self._core.checker.ordering(first, second)


def _unique(name: str, taken: set[str]) -> str:
    unique, numbers = name, count(2)
    while unique in taken:
        unique = f"{name}_{next(numbers)}"
    taken.add(unique)
    return unique


def _by_id(accesses: Sequence[protocol.Access]) -> Sequence[DeclaredRows]:
    """Name buffers by id: what is pending must not keep a step's buffer alive (R12)."""
    return [(buffer.id, rows) for buffer, rows in accesses] if accesses else ()
