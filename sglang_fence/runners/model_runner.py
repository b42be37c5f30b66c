"""``ModelRunner``: one model on one forward stream, with its mailbox."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from sglang_fence.device.buffers import SharedBuffer
from sglang_fence.fence.publication import Mailbox, Publisher, Resolution, resolve
from sglang_fence.graphs.parts import launch_all
from sglang_fence.observe.record import Phase
from sglang_fence.runners.forward import ForwardKernels

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sglang_fence.attention.base import AttentionBackend
    from sglang_fence.attention.batch import ForwardBatch
    from sglang_fence.contract import ForwardMode, SharedReadEnds
    from sglang_fence.device.protocol import DeviceModule, Stream
    from sglang_fence.environ import Switches
    from sglang_fence.fence.barrier import FencePolicy
    from sglang_fence.fence.events import EventPool, Marker
    from sglang_fence.graphs.parts import CapturedForward
    from sglang_fence.memory.kv_pool import PagedKV
    from sglang_fence.memory.request_pool import ReqToTokenPool
    from sglang_fence.models.served import ServedModel
    from sglang_fence.observe.probe import StepProbe
    from sglang_fence.runners.work import ForwardWork

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FenceSettings:
    """What publication has to know beside the backend's declaration."""

    switches: Switches
    policy: FencePolicy
    spec_reader_follows_prefill: bool = False
    """Whether a later speculative phase of a prefill step reads the shared buffers (the algorithm's to say)."""
    host_cache: bool = False
    """Whether a host or storage cache copies behind the schedule stream alone."""


class ModelRunner:
    """What decode and prefill runners of one model share.

    Args:
        device: where it runs.
        model: what it runs.
        backend: the attention backend.
        requests: rows.
        kv: pages.
        forward_stream: its stream.
        pool: fresh events for publications.
        probe: hears of resolutions and ranges.
        fence: switches and policy.
        order: shared by the publishers of all runners.
        role: ``target`` or ``draft``, for reports.
    """

    def __init__(  # noqa: PLR0913 - it joins what was built apart
        self,
        device: DeviceModule,
        model: ServedModel,
        backend: AttentionBackend,
        *,
        requests: ReqToTokenPool,
        kv: PagedKV,
        forward_stream: Stream,
        pool: EventPool,
        probe: StepProbe,
        fence: FenceSettings,
        order: Iterator[int] | None = None,
        role: str = "target",
    ) -> None:
        self.device = device
        self.model = model
        self.attn_backend = backend
        self.requests = requests
        self.kv = kv
        self.forward_stream = forward_stream
        self.probe = probe
        self.fence = fence
        self.pool = pool
        self.role = role
        self.shared_read_done = Mailbox(pool)
        self.publisher = Publisher(self.shared_read_done, pool, order)
        # A token a row: what a forward sampled, for the next one to read. The host isn't asked in between.
        relay = torch.zeros((requests.max_running + 1,), dtype=torch.int64, device=device.torch_device)
        self.relay = SharedBuffer(device, "relay", relay)
        self._prefill_engaged: set[str] = set()
        self._phases: dict[tuple[ForwardMode, str, SharedReadEnds, SharedReadEnds, str | None], Phase] = {}
        """One of each kind: whoever counts them finds the same one again."""
        self.prepare_metadata = probe.around("out_graph_metadata", _prepare_metadata)
        """Prepares a batch's attention metadata outside the graph: takes the backend that replays, and the batch."""
        self.replay = probe.around("replay", self._run_forward)
        """Enqueues a forward whose metadata is prepared: takes the graph (None: eagerly), backend, batch and step."""

    def resolve_shared_read_ends(
        self, backend: AttentionBackend, mode: ForwardMode, marker: Marker | None
    ) -> Resolution:
        """Resolve ``backend``'s declaration for ``mode`` against the graph about to replay, and tell the probe."""
        declared = backend.shared_read_ends(mode)
        resolution = resolve(declared, marker)
        if self.probe.on:
            key = mode, backend.name, declared, resolution.ends, resolution.downgrade
            phase = self._phases.get(key)
            if phase is None:
                phase = self._phases[key] = Phase(
                    mode, self.role, backend.name, declared, resolution.ends, resolution.downgrade
                )
            self.probe.resolved(phase)
        return resolution

    def _run_forward(
        self,
        graph: CapturedForward | None,
        backend: AttentionBackend,
        batch: ForwardBatch,
        work: ForwardWork,
    ) -> None:
        """Enqueue a forward: a replay, or its kernels one by one."""
        if graph is not None:
            graph.replay()
            return
        step_reads = ((work.inputs, (0,)),)
        kernels = ForwardKernels(self.device, self.model, backend, batch, step_reads, around=self.probe.around)
        launch_all(kernels.parts(lambda: None, breakable=False))

    def log_prefill_engaged(self, backend: AttentionBackend) -> None:
        """Log, the first time only, that prefill publishes for ``backend`` (R8)."""
        if backend.name not in self._prefill_engaged:
            self._prefill_engaged.add(backend.name)
            logger.info("prefill publishes its shared read end at PRE_REPLAY for attention backend %s", backend.name)


def _prepare_metadata(backend: AttentionBackend, batch: ForwardBatch) -> None:
    backend.init_forward_metadata_out_graph(batch)
