"""DFLASH and DSPARK: a block of drafts at once, from the target's own keys and values; verification reads last.

| phase | runner | reads of shared buffers |
|---|---|---|
| draft: one forward over the block (DSPARK: two, the second refines) | draft | ``req_to_token``, by its backend |
| target-verify | target | by its backend: the last reader |

The block's layers read what the target's first layers keep, and write there at P … P + D: slots that verification
rewrites before it reads them. Nothing has to catch up afterwards, and nothing reads behind a prefill (R8).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from sglang_fence.contract import ForwardMode
from sglang_fence.models.draft import block_draft
from sglang_fence.runners.graph_runner import GraphRunner, Load
from sglang_fence.speculative.algorithm import SpecContext, SpeculativeAlgorithm
from sglang_fence.speculative.draft_runner import DraftRunner
from sglang_fence.speculative.worker import SpeculativeWorker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sglang_fence.attention.batch import ForwardBatch
    from sglang_fence.models.served import Activations
    from sglang_fence.runners.model_runner import ModelRunner
    from sglang_fence.runners.prefill import PrefillRunner
    from sglang_fence.runners.work import ForwardWork

_BLANK = 0
"""The token that stands where a draft is to come."""


class DFlash(SpeculativeAlgorithm):
    """One pass over the block."""

    name = "dflash"
    passes = 1

    def is_last_shared_read_phase(self, mode: ForwardMode, *, staged: bool = False) -> bool:  # noqa: ARG002 - never staged
        """Verification reads last."""
        return mode.is_target_verify()

    def supports_prefill_shared_read_done(self) -> bool:
        """Nothing of the draft's follows a prefill."""
        return True

    def make_worker(self, context: SpecContext) -> SpeculativeWorker:
        """See the base."""
        return BlockWorker(self, context, self.passes)


class DSpark(DFlash):
    """A second pass refines the block. Verification is one full graph, whatever else is breakable."""

    name = "dspark"
    passes = 2

    @property
    def verifies_in_one_graph(self) -> bool:
        """See the base."""
        return True


class BlockWorker(SpeculativeWorker):
    """One block draft."""

    def __init__(self, algorithm: SpeculativeAlgorithm, context: SpecContext, passes: int) -> None:
        super().__init__(algorithm, context)
        self._passes = passes
        self._pass = 0
        drafter = DraftRunner(context, self.state, block_draft(self.target.model), context.target_kv)
        self.runner = drafter.runner
        self.block = GraphRunner(
            self.runner,
            context.graph,
            context.capture_bs,
            self._load,
            mode=ForwardMode.DRAFT_EXTEND,
            width=self.state.width,
            causal=False,
        )

    @property
    def last_shared_read_runner(self) -> ModelRunner:
        """The target's."""
        return self.target

    @property
    def runners(self) -> Sequence[ModelRunner]:
        """Target and draft."""
        return (self.target, self.runner)

    def graph_runners(self) -> Sequence[GraphRunner | PrefillRunner]:
        """See the base."""
        return (*super().graph_runners(), self.block)

    def draft(self, work: ForwardWork) -> None:
        """Fill the block, and refine it in further passes."""
        for number in range(self._passes):
            self._pass = number
            self._pick(self.block.execute(work, publish=number == self._passes - 1), work.lines)

    def _pick(self, acts: Activations, lines: int) -> None:
        drafts, width = self.state.drafts, self.state.width

        def body() -> None:
            if acts.logits is None:
                msg = "a draft before logits"
                raise RuntimeError(msg)
            best = acts.logits.argmax(-1).unflatten(0, (-1, width))
            drafts[:lines] = best[:lines, :-1]

        self.runner.device.launch("draft_pick", body)

    def _load(self, batch: ForwardBatch, work: ForwardWork) -> Load:
        """The newest token at P, and blanks (a later pass: the drafts so far) behind it."""
        body, reads = self.state.load_verify(batch, work)
        if self._pass:
            return body, reads

        def blank() -> None:
            body()
            batch.tokens.unflatten(0, (-1, self.state.width))[:, 1:] = torch.full(
                (), _BLANK, device=batch.tokens.device
            )

        return blank, reads
