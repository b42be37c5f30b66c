"""``PrefillRunner``: extends, eagerly or by captured graphs of fixed token counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from sglang_fence.attention.batch import ForwardBatch
from sglang_fence.contract import ForwardMode
from sglang_fence.graphs.breakable import BreakableGraph
from sglang_fence.graphs.full import FullGraph
from sglang_fence.graphs.parts import launch_all
from sglang_fence.runners.forward import ForwardKernels
from sglang_fence.runners.prefill_publication import maybe_publish_prefill_shared_read_done

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sglang_fence.graphs.parts import CapturedForward
    from sglang_fence.models.served import Activations
    from sglang_fence.runners.model_runner import ModelRunner
    from sglang_fence.runners.work import ForwardWork

GRAPH_LINES = 4
"""Requests a captured extend takes; one more line is padding. More requests run eagerly."""


class PrefillRunner:
    """Serves extends.

    Args:
        runner: the model, its stream, its mailbox.
        graph: ``full``, ``breakable`` or ``off``.
        capture_tokens: token counts to capture, ascending; a batch is padded to the next one.
    """

    def __init__(self, runner: ModelRunner, graph: str, capture_tokens: Sequence[int]) -> None:
        self._runner = runner
        self._kind = graph
        self._capture_tokens = sorted(capture_tokens)
        self._graphs: dict[int, tuple[CapturedForward, ForwardBatch]] = {}
        probe = runner.probe
        self._execute = probe.around("prefill", self._execute_batch)
        self._publish = probe.around("publish", maybe_publish_prefill_shared_read_done)

    def capture(self) -> None:
        """Capture every token count, the largest first. The device must be idle."""
        if self._kind == "off" or not self._runner.attn_backend.captures_extend:
            return
        device = self._runner.device
        with device.stream(self._runner.forward_stream):
            for tokens in reversed(self._capture_tokens):
                self._graphs[tokens] = self._capture_one(tokens)
        device.synchronize()

    def execute(self, work: ForwardWork) -> Activations:
        """Run one extend; see :meth:`execute_batch`. Logits are ``[lines, vocab]``, of each line's last token."""
        return self.execute_batch(work).acts

    def execute_batch(self, work: ForwardWork, prepare: Callable[[ForwardBatch], None] | None = None) -> ForwardBatch:
        """Run one extend on the current (forward) stream; returns its batch, with the activations.

        ``prepare`` launches what the model takes beside tokens, right behind the batch's loading.

        Its read end is published after its metadata is prepared, before anything else is launched (R8).
        """
        return self._execute(work, prepare)

    def _execute_batch(self, work: ForwardWork, prepare: Callable[[ForwardBatch], None] | None) -> ForwardBatch:
        runner = self._runner
        backend = runner.attn_backend
        graph, batch = self._batch_for(work)
        self._load_batch(batch, work)
        if prepare is not None:
            prepare(batch)
        runner.prepare_metadata(backend, batch)
        ends = runner.resolve_shared_read_ends(backend, batch.mode, None).ends
        self._publish(runner, backend, batch, ends)
        runner.device.host("launch")
        runner.replay(graph, backend, batch, work)
        return batch

    def _batch_for(self, work: ForwardWork) -> tuple[CapturedForward | None, ForwardBatch]:
        if work.lines <= GRAPH_LINES:
            for tokens in self._capture_tokens:
                captured = self._graphs.get(tokens)
                if captured is not None and work.new_tokens <= tokens:
                    return captured
        return None, self._new_batch(work.lines, work.new_tokens)

    def _capture_one(self, tokens: int) -> tuple[CapturedForward, ForwardBatch]:
        runner = self._runner
        backend = runner.attn_backend
        batch = self._new_batch(GRAPH_LINES + 1, tokens, static=True)
        backend.init_forward_metadata_out_graph(batch, in_capture=True)
        kernels = ForwardKernels(runner.device, runner.model, backend, batch, around=runner.probe.around)
        parts = kernels.parts(lambda: None, breakable=self._kind == "breakable")
        launch_all(parts)  # warm-up: libraries choose their kernels outside the capture
        runner.device.synchronize()
        kind = BreakableGraph if self._kind == "breakable" else FullGraph
        with runner.probe.range("capture"):
            graph = kind(runner.device, f"extend_t{tokens}", parts, lambda: None)
        graph.observe(runner.probe.around)
        return graph, batch

    def _new_batch(self, lines: int, tokens: int, *, static: bool = False) -> ForwardBatch:
        def zeros(count: int) -> torch.Tensor:
            return torch.zeros((count,), dtype=torch.int64, device=self._runner.device.torch_device)

        batch = ForwardBatch(
            ForwardMode.EXTEND,
            req_rows=zeros(lines),
            seq_lens=zeros(lines) + 1,
            tokens=zeros(tokens),
            positions=zeros(tokens),
            token_lines=zeros(tokens) + lines - 1,
            last_tokens=zeros(lines),
            static=static,
        )
        batch.acts.features = self._runner.model.new_features(tokens)
        return batch

    def _load_batch(self, batch: ForwardBatch, work: ForwardWork) -> None:
        """Copy the step's inputs into the batch's tensors; padding belongs to the last line, which has row 0."""
        padded = len(batch.tokens) > work.new_tokens or len(batch.seq_lens) > work.lines
        batch.step = work.step
        batch.lines = work.lines
        batch.rows = (*work.rows, 0) if padded else work.rows
        batch.pages = work.pages
        batch.written = work.pages if work.written is None else work.written
        batch.query_lens = work.query_lens
        batch.kv_lens = work.kv_lens
        packed, lines, new = work.inputs.tensor[0], work.lines, work.new_tokens

        def body() -> None:
            rows, lens, last, tokens, positions, token_lines = packed.split([lines] * 3 + [new] * 3)
            for static, values, filler in (
                (batch.req_rows, rows, 0),
                (batch.seq_lens, lens, 1),
                (batch.last_tokens, last, 0),
                (batch.tokens, tokens, 0),
                (batch.positions, positions, 0),
                (batch.token_lines, token_lines, len(batch.seq_lens) - 1),
            ):
                if static is not None:
                    static[: len(values)] = values
                    static[len(values) :] = filler

        self._runner.device.launch("load_batch", body, reads=((work.inputs, (0,)),))
