"""The kernels of one forward, as parts: metadata, embedding, layers, logits."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sglang_fence.graphs.parts import Part

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

    from sglang_fence.attention.base import AttentionBackend
    from sglang_fence.attention.batch import ForwardBatch
    from sglang_fence.device.protocol import Access, DeviceModule
    from sglang_fence.graphs.parts import Around
    from sglang_fence.models.served import ServedModel


class ForwardKernels:
    """Launches one model's forward through one backend.

    Args:
        device: launches.
        model: computes.
        backend: attends.
        batch: what it runs on; bodies read it when they run.
        step_reads: step buffers that eager kernels read through views. They are named at the launch and not kept, so
            that the step record alone decides how long they live (R12).
        around: marks the metadata preparation in the graph as a range, when it is captured and when it runs eagerly.
    """

    def __init__(
        self,
        device: DeviceModule,
        model: ServedModel,
        backend: AttentionBackend,
        batch: ForwardBatch,
        step_reads: tuple[Access, ...] = (),
        *,
        around: Around | None = None,
    ) -> None:
        self._device = device
        self._model = model
        self._backend = backend
        self._batch = batch
        self._step_reads = step_reads
        prepare = partial(backend.init_forward_metadata_in_graph, batch)
        self._prepare_metadata = prepare if around is None else around("in_graph_metadata", prepare)

    def parts(self, after_metadata: Callable[[], None], *, breakable: bool) -> list[Part]:
        """The forward from in-graph metadata on. The metadata outside the graph must be prepared already.

        Args:
            after_metadata: called right behind the in-graph metadata: here the marker is planted.
            breakable: run every second layer eagerly, between two segments.
        """
        lanes = self._backend.lanes(self._batch)

        def begin() -> None:
            self._prepare_metadata()
            after_metadata()
            for _, part in lanes:
                self._embed(part)

        parts = [Part(begin)]
        hand_overs = [self._hand_over(part) for _, part in lanes]
        leave = _in_turn(*(leave for leave, _ in hand_overs))
        take = _in_turn(*(take for _, take in hand_overs))
        segment = 0
        for index in range(self._model.num_layers):
            layer = _in_turn(*(self._layer_launch(backend, part, index) for backend, part in lanes))
            if not (breakable and index % 2 == 1):
                parts.append(Part(layer))
                continue
            segment += 1
            parts += [
                Part(leave),
                Part(_in_turn(take, layer, leave), breaks=True),
                Part(_in_turn(take, partial(self._backend.init_forward_metadata_segment, self._batch, segment))),
            ]
        parts.append(Part(_in_turn(*(partial(self._head, part) for _, part in lanes), partial(self._merge, lanes))))
        return parts

    def _embed(self, batch: ForwardBatch) -> None:
        model = self._model
        self._device.launch(
            "embed",
            lambda: model.embed(batch.acts, batch.tokens, batch.positions),
            reads=self._step_reads,
        )

    def _layer_launch(self, backend: AttentionBackend, batch: ForwardBatch, index: int) -> Callable[[], None]:
        model = self._model
        kernel = "layer" if batch.width else "extend_layer"

        def attend(layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
            return backend.attend(batch, layer, query, key, value)

        def launch() -> None:
            reads, writes = backend.layer_accesses(batch, index)
            self._device.launch(
                kernel,
                lambda: model.layer(batch.acts, index, batch.positions, attend),
                reads=(*reads, *self._step_reads),
                writes=writes,
            )

        return launch

    def _head(self, batch: ForwardBatch) -> None:
        model = self._model
        self._device.launch("lm_head", lambda: model.head(batch.acts, batch.last_tokens), reads=self._step_reads)

    def _merge(self, lanes: Sequence[tuple[AttentionBackend, ForwardBatch]]) -> None:
        """Put the parts of a split batch together again."""
        acts, parts = self._batch.acts, [part.acts for _, part in lanes]
        if parts != [acts]:
            self._device.launch("merge", lambda: acts.join(parts))

    def _hand_over(self, batch: ForwardBatch) -> tuple[Callable[[], None], Callable[[], None]]:
        """Launches that put the activations into a static tensor, and take them from there.

        The tensor is made by the first body that runs, which on CUDA is in the first segment's capture.
        """
        acts = batch.acts
        carry: list[torch.Tensor] = []

        def leave() -> None:
            hidden = acts.hidden
            if hidden is None:
                msg = "a break before any activations"
                raise RuntimeError(msg)
            if carry:
                carry[0].copy_(hidden)
            else:
                carry.append(hidden.clone())

        def take() -> None:
            acts.hidden = carry[0]

        return (
            lambda: self._device.launch("hand_over", leave),
            lambda: self._device.launch("hand_over", take),
        )


def _in_turn(*launches: Callable[[], None]) -> Callable[[], None]:
    def launch() -> None:
        for one in launches:
            one()

    return launch


def capture_sizes(largest: int) -> Sequence[int]:
    """Batch sizes to capture: powers of two below ``largest``, and itself."""
    sizes = [1]
    while sizes[-1] * 2 < largest:
        sizes.append(sizes[-1] * 2)
    return [*sizes, largest] if largest > 1 else sizes
