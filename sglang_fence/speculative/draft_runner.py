"""``DraftRunner``: one draft model's phases: prefill, decode ahead, draft-extend."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from sglang_fence.contract import ForwardMode
from sglang_fence.runners.graph_runner import GraphRunner, Load
from sglang_fence.runners.model_runner import ModelRunner
from sglang_fence.runners.prefill import PrefillRunner

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglang_fence.attention.base import AttentionBackend
    from sglang_fence.attention.batch import ForwardBatch
    from sglang_fence.memory.kv_pool import KVStore
    from sglang_fence.models.served import Activations, ServedModel
    from sglang_fence.runners.work import ForwardWork
    from sglang_fence.speculative.algorithm import SpecContext
    from sglang_fence.speculative.state import RoundState


class DraftRunner:
    """A draft model on the target's forward stream, with a mailbox of its own.

    Args:
        context: what to build from.
        state: this round's drafts, and the relays.
        model: the draft model; one with features takes the target's hidden states.
        kv: where it keeps keys and values.
        backend: attends; None: one of the kind that was asked for.
    """

    def __init__(
        self,
        context: SpecContext,
        state: RoundState,
        model: ServedModel,
        kv: KVStore,
        backend: AttentionBackend | None = None,
    ) -> None:
        target = context.target
        self.state = state
        self.runner = ModelRunner(
            target.device,
            model,
            backend or context.make_backend(kv),
            requests=target.requests,
            kv=context.target_kv,
            forward_stream=target.forward_stream,
            pool=target.pool,
            probe=target.probe,
            fence=replace(target.fence, spec_reader_follows_prefill=False),
            order=context.order,
            role="draft",
        )
        self.prefill = PrefillRunner(self.runner, "off", ())
        self.decode = self._phase(context, ForwardMode.DECODE, 1)
        self.extend = self._phase(context, ForwardMode.DRAFT_EXTEND, state.width)
        self.verified: Activations | None = None
        """The target's activations of the verification that a draft-extend follows."""
        self._step = 0
        self._last: Activations | None = None

    def run_prefill(self, work: ForwardWork, prefilled: Activations) -> None:
        """Run the draft model over the prefill's tokens, each with the target's hidden state of the one before it."""
        device, state = self.runner.device, self.state

        def prepare(batch: ForwardBatch) -> None:
            features, lines = batch.acts.features, batch.token_lines
            if features is None or lines is None:
                return
            rows, positions = batch.req_rows, batch.positions

            def body() -> None:
                final = _final(prefilled)
                new = len(lines)
                features[1:] = final[: new - 1]
                first = torch.ones_like(lines, dtype=torch.bool)
                first[1:] = lines[1:] != lines[:-1]
                # A chunk goes on from the relay; a prompt, or what the prefix cache knew of it, starts from nothing.
                before = torch.where((positions == 0)[:, None], 0, state.features.tensor[rows[lines]])
                features.copy_(torch.where(first[:, None], before, features))

            device.launch("draft_features", body, reads=state.accesses(work)[2:])

        self.prefill.execute_batch(work, prepare)

    def follow(self, before: DraftRunner | None) -> None:
        """Take features from another head's last step; None: from the target."""
        self._last = None if before is None else before._last  # noqa: SLF001 - of this very class

    def run_decode(self, work: ForwardWork, step: int, *, publish: bool) -> None:
        """Draft token number ``step`` of the round."""
        self._step = step
        acts = self._last = self.decode.execute(work, publish=publish)
        drafts, lines = self.state.drafts, work.lines

        def pick() -> None:
            if acts.logits is None:
                msg = "a draft before logits"
                raise RuntimeError(msg)
            drafts[:lines, step] = acts.logits[:lines].argmax(-1)

        self.runner.device.launch("draft_pick", pick)

    def _phase(self, context: SpecContext, mode: ForwardMode, width: int) -> GraphRunner:
        loader = self.load_decode if mode.is_decode() else self.load_extend
        return GraphRunner(self.runner, context.graph, context.capture_bs, loader, mode=mode, width=width)

    def load_decode(self, batch: ForwardBatch, work: ForwardWork) -> Load:
        """The newest token or the draft before, at P + step; features likewise."""
        state, step, last = self.state, self._step, self._last
        accesses = state.accesses(work)

        def body() -> None:
            lines = len(batch.req_rows)
            batch.positions.copy_(state.newest.tensor[batch.req_rows] + step)
            batch.seq_lens.copy_(batch.positions + 1)
            newest = state.relay.tensor[batch.req_rows]
            batch.tokens.copy_(newest if step == 0 else state.drafts[:lines, step - 1])
            features = batch.acts.features
            if features is not None:
                own = last is None or step == 0
                features.copy_(state.features.tensor[batch.req_rows] if own else _final(last)[:lines])

        return body, accesses

    def load_features(self, batch: ForwardBatch, work: ForwardWork) -> None:
        """Launch the kernel that gives a batch, staged before verification, its features."""
        fill = self._fill_features(batch)
        if fill is not None:
            self.runner.device.launch("draft_features", fill, reads=self.state.accesses(work)[2:])

    def load_extend(self, batch: ForwardBatch, work: ForwardWork) -> Load:
        """The verified tokens at P … P + D, each with the target's hidden state of the position before it."""
        body, reads = self.state.load_verify(batch, work)
        fill = self._fill_features(batch)
        if fill is None:
            return body, reads

        def both() -> None:
            body()
            fill()

        return both, self.state.accesses(work)

    def _fill_features(self, batch: ForwardBatch) -> Callable[[], None] | None:
        """None for a model without features, and for a batch that is staged: verification is still to come."""
        features, verified, state = batch.acts.features, self.verified, self.state
        if features is None or verified is None:
            return None

        def fill() -> None:
            shifted = _final(verified).unflatten(0, (-1, state.width))[:, :-1]
            before = state.features.tensor[batch.req_rows]
            features.copy_(torch.cat((before[:, None], shifted), dim=1).flatten(0, 1))

        return fill


def _final(acts: Activations | None) -> torch.Tensor:
    """Hidden states behind the last layer, ``[tokens, hidden_size]``."""
    if acts is None or acts.final is None:
        msg = "features before the forward that makes them"
        raise RuntimeError(msg)
    return acts.final[0]
