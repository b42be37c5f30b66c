"""A model on a traced simulated device, with runners that serve one step at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pytest

from sglang_fence.attention.native import NativeAttnBackend
from sglang_fence.contract import ForwardMode
from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.device.simulated.graphs import SimulatedGraph
from sglang_fence.device.simulated.streams import SimulatedEvent
from sglang_fence.environ import Switches
from sglang_fence.fence.barrier import FencePolicy, WarBarrier
from sglang_fence.fence.events import EventPool
from sglang_fence.fence.publication import Mailbox
from sglang_fence.memory.kv_pool import PagedKV
from sglang_fence.memory.request_pool import ReqToTokenPool, RowUpdates
from sglang_fence.models.loading import ModelOptions, load_model
from sglang_fence.observe.observer import Observer, Observers
from sglang_fence.observe.probe import StepProbe
from sglang_fence.runners.decode import DecodeRunner
from sglang_fence.runners.model_runner import FenceSettings, ModelRunner
from sglang_fence.runners.prefill import PrefillRunner
from sglang_fence.runners.work import ForwardWork, pack_decode, pack_extend, upload_inputs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

    from sglang_fence.attention.base import AttentionBackend
    from sglang_fence.contract import SharedReadEnds
    from sglang_fence.device.protocol import Access, Stream
    from sglang_fence.fence.publication import ReadDone
    from sglang_fence.observe.record import Phase, StepRecord

PAGE_SIZE = 4
FINE = FencePolicy(enabled=True, forced_coarse=False, why="test")


class TracedEvent(SimulatedEvent):
    """Writes down each record from the host."""

    log: list[str]

    def record(self, stream: Stream | None = None) -> None:
        self.log.append("record")
        super().record(stream)


class TracedGraph(SimulatedGraph):
    """Writes down each replay."""

    log: list[str]

    def replay(self) -> None:
        self.log.append(f"replay {self.name}")
        super().replay()


class TracedDevice(SimulatedDevice):
    """Writes down what the host enqueues, in order."""

    def __init__(self, *, external_events: bool = True) -> None:
        super().__init__(external_events=external_events)
        self.log: list[str] = []

    def Event(self, *, enable_timing: bool = False, external: bool = False) -> TracedEvent:  # noqa: N802 - protocol's
        super().Event(external=external)  # refuses what the device lacks
        event = TracedEvent(self._core, timed=enable_timing, external=external)
        event.log = self.log
        return event

    def Graph(self, name: str) -> TracedGraph:  # noqa: N802 - protocol's
        graph = TracedGraph(self._core, name)
        graph.log = self.log
        return graph

    def launch(
        self,
        name: str,
        body: Callable[[], object],
        *,
        reads: Sequence[Access] = (),
        writes: Sequence[Access] = (),
    ) -> None:
        self.log.append(name)
        super().launch(name, body, reads=reads, writes=writes)


class TracedMailbox(Mailbox):
    """Writes down each publication."""

    __slots__ = ("log", "published")

    def __init__(self, pool: EventPool, log: list[str]) -> None:
        super().__init__(pool)
        self.log = log
        self.published: list[ReadDone] = []

    def put(self, done: ReadDone) -> None:
        self.log.append(f"publish {done.ends.name}")
        self.published.append(done)
        super().put(done)


class Listener(Observer):
    """Hears of finished steps, so that the probe is on."""

    def step_finished(self, record: StepRecord) -> None:
        pass


class Resolutions(StepProbe):
    """A probe that keeps what was resolved."""

    def __init__(self) -> None:
        super().__init__(Observers([Listener()]))
        self.seen: list[tuple[SharedReadEnds, SharedReadEnds, str | None]] = []

    def resolved(self, phase: Phase) -> None:
        self.seen.append((phase.declared, phase.resolved, phase.downgrade))
        super().resolved(phase)


class Rig:
    """Runners over a pool in which request ``i`` has row ``i + 1`` and pages of its own."""

    def __init__(
        self,
        backend: type[AttentionBackend] = NativeAttnBackend,
        graph: str = "full",
        device: TracedDevice | None = None,
        switches: Switches | None = None,
        *,
        capture: bool = True,
    ) -> None:
        self.device = TracedDevice() if device is None else device
        self.log = self.device.log
        self.schedule, self.forward = self.device.Stream("schedule"), self.device.Stream("forward")
        model = load_model(ModelOptions(context_len=32), self.device.torch_device)
        self.requests = ReqToTokenPool(self.device, max_running=6, context_len=32)
        self.kv = PagedKV(
            self.device, model.kv_layout(), pages=48, page_size=PAGE_SIZE, context_len=32, prefix_cache=False
        )
        self.pool = EventPool(self.device)
        self.probe = Resolutions()
        self.runner = ModelRunner(
            self.device,
            model,
            backend(self.device, self.requests, self.kv),
            requests=self.requests,
            kv=self.kv,
            forward_stream=self.forward,
            pool=self.pool,
            probe=self.probe,
            fence=FenceSettings(Switches() if switches is None else switches, FINE),
        )
        self.mailbox = TracedMailbox(self.pool, self.log)
        self.runner.shared_read_done = self.runner.publisher._mailbox = self.mailbox
        self.decode = DecodeRunner(self.runner, graph, [1, 2, 4])
        self.prefill = PrefillRunner(self.runner, graph, [8])
        self.barrier = WarBarrier(self.device, self.schedule, FINE, self.pool, self.probe)
        self.step = 0
        self.held: list[ForwardWork] = []
        """Every step's, so that nothing is freed early (R12)."""
        if capture:
            self.capture()
        self._assign()

    def capture(self) -> None:
        self.decode.capture()
        self.prefill.capture()

    def run_decode(self, lines: int = 1, kv_len: int = 5) -> ReadDone:
        """Run one decode and return its publication; what it enqueued stays in ``log``."""
        rows, kv_lens = self._rows(lines), (kv_len,) * lines
        return self._run(ForwardMode.DECODE, (1,) * lines, kv_lens, pack_decode(rows, kv_lens))

    def run_extend(self, lines: int = 1, new: int = 3) -> ReadDone:
        """Run one extend of ``new`` tokens a line and return its publication."""
        rows, lens = self._rows(lines), (new,) * lines
        return self._run(ForwardMode.EXTEND, lens, lens, pack_extend(rows, lens, lens, [7] * new * lines))

    def rewrite(self, done: ReadDone) -> None:
        """Let the schedule stream wait for the step's fence, and then overwrite what the step read."""
        self.barrier.apply(done.step, self, self.forward)
        self._assign()

    @property
    def last_shared_read_mailbox(self) -> Mailbox:
        return self.mailbox

    @property
    def mailboxes(self) -> tuple[Mailbox, ...]:
        return (self.mailbox,)

    def is_last_shared_read_phase(self, mode: ForwardMode) -> bool:
        return mode in {ForwardMode.DECODE, ForwardMode.EXTEND}

    def _run(
        self, mode: ForwardMode, query_lens: tuple[int, ...], kv_lens: tuple[int, ...], packed: torch.Tensor
    ) -> ReadDone:
        lines = len(kv_lens)
        with self.device.stream(self.schedule):
            inputs = upload_inputs(self.device, "inputs", packed, self.schedule)
        self.forward.wait_stream(self.schedule)
        pages = tuple(page for line in range(lines) for page in self._pages(line))
        work = ForwardWork(self.step, mode, self._rows(lines), kv_lens, query_lens, pages, inputs)
        self.held.append(work)
        self.log.clear()
        before = len(self.mailbox.published)
        with self.device.stream(self.forward):
            (self.decode if mode.is_decode() else self.prefill).execute(work)
        self.step += 1
        (done,) = self.mailbox.published[before:]  # once a phase, always (R5)
        return done

    def _assign(self) -> None:
        updates = RowUpdates()
        for line in range(6):
            updates.add(line + 1, 0, self.kv.slots(self._pages(line), 0, 32))
        with self.device.stream(self.schedule):
            self.requests.write("assign_req_to_token", updates)

    @staticmethod
    def _rows(lines: int) -> tuple[int, ...]:
        return tuple(range(1, lines + 1))

    @staticmethod
    def _pages(line: int) -> list[int]:
        return [1 + 8 * line + index for index in range(8)]


class MakeRig(Protocol):
    """See :class:`Rig`."""

    def __call__(
        self,
        backend: type[AttentionBackend] = ...,
        graph: str = ...,
        device: TracedDevice | None = ...,
        switches: Switches | None = ...,
        *,
        capture: bool = ...,
    ) -> Rig: ...


@pytest.fixture
def make_rig() -> MakeRig:
    """Make runners."""
    return Rig


@pytest.fixture
def make_device() -> type[TracedDevice]:
    """Make a device that writes down what it is told."""
    return TracedDevice
