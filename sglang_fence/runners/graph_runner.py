"""``GraphRunner``: phases with as many tokens for each request, by captured graphs, one a batch size, or eagerly.

Decode, target-verify and draft-extend are such phases. The order inside :meth:`GraphRunner.execute` is the rule (R5):
load, prepare, [publish PRE_REPLAY], replay, [publish IN_REPLAY or POST_REPLAY].
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch

from sglang_fence.attention.batch import ForwardBatch
from sglang_fence.contract import FallbackReason, ForwardMode, SharedReadEnds
from sglang_fence.fence.events import Marker
from sglang_fence.graphs.breakable import BreakableGraph
from sglang_fence.graphs.full import FullGraph
from sglang_fence.graphs.parts import launch_all
from sglang_fence.runners.forward import ForwardKernels

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sglang_fence.attention.base import AttentionBackend
    from sglang_fence.device.protocol import Access, Stream
    from sglang_fence.graphs.parts import CapturedForward
    from sglang_fence.models.served import Activations
    from sglang_fence.runners.model_runner import ModelRunner
    from sglang_fence.runners.work import ForwardWork

GRAPH_KINDS = ("full", "breakable", "off")


Captured = tuple["CapturedForward", ForwardBatch]
"""A graph, and the static batch that it runs on."""

Load = tuple["Callable[[], None]", "tuple[Access, ...]"]
"""The body that fills a batch's lengths, positions and tokens, and the shared buffers that it reads."""


class Loader(Protocol):
    """Where a phase's lengths, positions and tokens come from."""

    def __call__(self, batch: ForwardBatch, work: ForwardWork) -> Load:
        """Say how to fill ``batch``, whose rows are filled already; padding lines have row 0."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A phase whose batch is loaded and whose metadata outside the graph is prepared, but that isn't launched yet."""

    graph: CapturedForward | None
    """None: it runs eagerly."""
    batch: ForwardBatch
    backend: AttentionBackend
    ends: SharedReadEnds
    """Where its shared reads end, resolved against ``graph``."""


class GraphRunner:
    """Serves one kind of phase.

    Args:
        runner: the model, its stream, its mailbox.
        graph: ``full``, ``breakable``, or ``off`` (eager: no marker is ever planted, so IN_REPLAY becomes POST_REPLAY).
        capture_bs: batch sizes to capture, ascending; a batch is padded to the next one.
        loader: fills a batch.
        mode: of the phase.
        width: tokens a request.
        causal: whether a token sees none after it.
    """

    def __init__(
        self,
        runner: ModelRunner,
        graph: str,
        capture_bs: Sequence[int],
        loader: Loader,
        *,
        mode: ForwardMode,
        width: int,
        causal: bool = True,
    ) -> None:
        self._runner = runner
        self._kind = graph
        self._capture_bs = sorted(capture_bs)
        self._loader = loader
        self._mode = mode
        self._width = width
        self._causal = causal
        self._graphs: dict[int, Captured] = {}
        self._planted: Marker | None = None
        self._publish = runner.probe.around("publish", self._publish_read_done)

    def capture(self) -> None:
        """Capture every batch size. The device must be idle."""
        self._graphs = self._capture_on(self._runner.forward_stream)

    def execute(self, work: ForwardWork, *, publish: bool = True) -> Activations:
        """Run one phase on the current (forward) stream; returns its activations, logits ``[lines · width, vocab]``.

        ``publish`` is false for all but the last replay of a phase that takes several (a draft's decode steps).
        """
        prepared = self.prepare(work, publish=publish)
        return self.launch(prepared, work, publish=publish)

    def prepare(self, work: ForwardWork, *, publish: bool = True) -> Prepared:
        """Load the batch and prepare its metadata outside the graph; publish PRE_REPLAY, if reads end here."""
        graph, batch = self._graph_for(work.lines) or (None, self._new_batch(work.lines))
        backend = self._replay_attn_backend()
        self._load_batch(batch, work)
        self._runner.prepare_metadata(backend, batch)
        marker = None if graph is None else graph.in_graph_metadata_prep_done
        ends = self._resolve_shared_read_ends(backend, batch.mode, marker)
        if publish and ends is SharedReadEnds.PRE_REPLAY:
            self._publish(batch, ends, marker)
        return Prepared(graph, batch, backend, ends)

    def launch(self, prepared: Prepared, work: ForwardWork, *, publish: bool = True) -> Activations:
        """Launch what was prepared, eagerly where there is no graph; publish IN_REPLAY, POST_REPLAY or UNKNOWN."""
        graph, batch = prepared.graph, prepared.batch
        self._runner.device.host("launch")
        self._runner.replay(graph, prepared.backend, batch, work)
        if publish and prepared.ends is not SharedReadEnds.PRE_REPLAY:
            marker = None if graph is None else graph.in_graph_metadata_prep_done
            self._publish(batch, prepared.ends, marker)
        return batch.acts

    def _replay_attn_backend(self) -> AttentionBackend:
        """The backend that replays: both metadata preparation and resolution ask this one (R2)."""
        return self._runner.attn_backend

    def _replay_graphs(self) -> Mapping[int, Captured]:
        """The graphs that replay, by batch size."""
        return self._graphs

    def _resolve_shared_read_ends(
        self,
        backend: AttentionBackend,
        mode: ForwardMode,
        marker: Marker | None,
    ) -> SharedReadEnds:
        """Resolve against the marker of the graph about to replay (R4)."""
        return self._runner.resolve_shared_read_ends(backend, mode, marker).ends

    def _record_in_graph_metadata_prep_done(self) -> None:
        """Plant the marker, if the stream is capturing: the warm-up runs through here too, and plants nothing (R9)."""
        self._planted = Marker.plant(self._runner.device) or self._planted

    def _publish_read_done(self, batch: ForwardBatch, ends: SharedReadEnds, marker: Marker | None) -> None:
        """Publish the phase, always (R5). The caller chose the moment that ``ends`` asks for."""
        publisher = self._runner.publisher
        if ends is SharedReadEnds.PRE_REPLAY:
            publisher.pre_replay(batch.step, batch.mode)
        elif ends is SharedReadEnds.IN_REPLAY and marker is not None:
            publisher.in_replay(batch.step, batch.mode, marker)
        elif ends is SharedReadEnds.POST_REPLAY:
            publisher.post_replay(batch.step, batch.mode)
        else:
            publisher.unknown(batch.step, batch.mode, FallbackReason.BACKEND_UNKNOWN)

    def _graph_for(self, lines: int) -> Captured | None:
        index = bisect_left(self._capture_bs, lines)
        return self._replay_graphs().get(self._capture_bs[index]) if index < len(self._capture_bs) else None

    def _capture_on(self, stream: Stream) -> dict[int, Captured]:
        """Capture every batch size on ``stream``, the largest first, so that memory is taken once."""
        if self._kind == "off":
            return {}
        device = self._runner.device
        with device.stream(stream):
            graphs = {size: self._capture_one(size) for size in reversed(self._capture_bs)}
        device.synchronize()
        return graphs

    def _graph_name(self, size: int) -> str:
        """What reports call a graph."""
        return f"{self._mode}_bs{size}"

    def _capture_one(self, size: int) -> Captured:
        runner = self._runner
        backend = self._replay_attn_backend()
        batch = self._new_batch(size, static=True)
        backend.init_forward_metadata_out_graph(batch, in_capture=True)
        one_graph = batch.mode.is_target_verify() and backend.verifies_in_one_graph
        breakable = self._kind == "breakable" and not one_graph
        kernels = ForwardKernels(runner.device, runner.model, backend, batch, around=runner.probe.around)
        parts = kernels.parts(self._record_in_graph_metadata_prep_done, breakable=breakable)
        launch_all(parts)  # warm-up: libraries choose their kernels outside the capture
        runner.device.synchronize()
        self._planted = None
        kind = BreakableGraph if breakable else FullGraph
        with runner.probe.range("capture"):
            graph = kind(runner.device, self._graph_name(size), parts, lambda: self._planted)
        graph.observe(runner.probe.around)
        return graph, batch

    def _new_batch(self, size: int, *, static: bool = False) -> ForwardBatch:
        def zeros(count: int) -> torch.Tensor:
            return torch.zeros((count,), dtype=torch.int64, device=self._runner.device.torch_device)

        batch = ForwardBatch(
            self._mode,
            req_rows=zeros(size),
            seq_lens=zeros(size) + self._width,
            tokens=zeros(size * self._width),
            positions=zeros(size * self._width),
            width=self._width,
            causal=self._causal,
            static=static,
        )
        batch.acts.features = self._runner.model.new_features(size * self._width)
        return batch

    def _load_batch(self, batch: ForwardBatch, work: ForwardWork) -> None:
        """Copy the step's inputs into the batch's tensors; padding lines get row 0, and with it the padding slot."""
        padded = len(batch.seq_lens) > work.lines
        batch.step = work.step
        batch.lines = work.lines
        batch.rows = (*work.rows, 0) if padded else work.rows
        batch.pages = work.pages
        batch.written = work.pages if work.written is None else work.written
        packed, lines = work.inputs.tensor[0], work.lines
        fill, reads = self._loader(batch, work)

        def body() -> None:
            batch.req_rows[lines:] = 0
            batch.req_rows[:lines] = packed[:lines]
            fill()

        self._runner.device.launch("load_batch", body, reads=((work.inputs, (0,)), *reads))
