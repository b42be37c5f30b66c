"""Multi-layer EAGLE: a head for each draft position, and draft-extends that may be staged before verification.

| phase | runner | reads of shared buffers |
|---|---|---|
| stage, where the batch is the one of the round before | each head's | ``req_to_token``, a snapshot of it |
| draft, one decode step a head | each head's | ``req_to_token``, by its backend |
| target-verify | target | by its backend |
| draft-extend | each head's | ``req_to_token`` again; nothing where it was staged |

So the owner of the last shared read changes from step to step: the last head's runner, or the target's where the step
was staged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.attention.staged import StagedAttnBackend
from sglang_fence.memory.kv_pool import DraftKV
from sglang_fence.models.draft import feature_draft
from sglang_fence.speculative.algorithm import SpecContext, SpeculativeAlgorithm
from sglang_fence.speculative.draft_runner import DraftRunner
from sglang_fence.speculative.worker import SpeculativeWorker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sglang_fence.contract import ForwardMode
    from sglang_fence.models.served import Activations
    from sglang_fence.runners.graph_runner import GraphRunner, Prepared
    from sglang_fence.runners.model_runner import ModelRunner
    from sglang_fence.runners.prefill import PrefillRunner
    from sglang_fence.runners.work import ForwardWork


class MultiLayerEagle(SpeculativeAlgorithm):
    """A head a draft position."""

    name = "multi_layer_eagle"

    def is_last_shared_read_phase(self, mode: ForwardMode, *, staged: bool = False) -> bool:
        """Draft-extend; verification where draft-extend was staged before it."""
        return mode.is_target_verify() if staged else mode.is_draft_extend()

    def make_worker(self, context: SpecContext) -> SpeculativeWorker:
        """See the base."""
        return MultiLayerWorker(self, context)


class MultiLayerWorker(SpeculativeWorker):
    """One draft runner a head."""

    def __init__(self, algorithm: SpeculativeAlgorithm, context: SpecContext) -> None:
        super().__init__(algorithm, context)
        device, target = self.target.device, self.target
        self._heads: list[DraftRunner] = []
        self._staging: list[DraftRunner] = []
        for index in range(context.draft_tokens):
            model = feature_draft(target.model, index)
            kv = DraftKV(device, model.kv_layout(), context.target_kv, f"draft_kv_cache_{index}")
            self._heads.append(DraftRunner(context, self.state, model, kv))
            staged = StagedAttnBackend(device, target.requests, kv)
            self._staging.append(DraftRunner(context, self.state, model, kv, staged))
        self._rows: tuple[int, ...] = ()
        self._staged: list[Prepared] = []

    @property
    def last_shared_read_runner(self) -> ModelRunner:
        """The target's where the step was staged; the last head's otherwise."""
        return self.target if self.staged else self._heads[-1].runner

    @property
    def runners(self) -> Sequence[ModelRunner]:
        """Target, heads, and the heads' staging runners."""
        return [self.target, *(head.runner for head in (*self._heads, *self._staging))]

    def graph_runners(self) -> Sequence[GraphRunner | PrefillRunner]:
        """See the base."""
        own = [runner for head in self._heads for runner in (head.decode, head.extend)]
        return [*super().graph_runners(), *own, *(head.extend for head in self._staging)]

    def after_prefill(self, work: ForwardWork, prefilled: Activations) -> None:
        """Prefill every head."""
        self._rows = ()
        for head in self._heads:
            head.run_prefill(work, prefilled)

    def stage(self, work: ForwardWork) -> bool:
        """A round of the same requests as the one before is staged."""
        staged = work.rows == self._rows
        self._rows = work.rows
        return staged

    def draft(self, work: ForwardWork) -> None:
        """One token a head; then, where the round is staged, the draft-extends' metadata: their reads end here."""
        before: DraftRunner | None = None
        for step, head in enumerate(self._heads):
            head.follow(before)
            head.run_decode(work, step, publish=True)
            before = head
        self._staged = []
        for head in self._staging if self.staged else ():
            head.verified = None  # still to come; its features follow in draft_extend()
            self._staged.append(head.extend.prepare(work))

    def draft_extend(self, work: ForwardWork, verified: Activations) -> None:
        """Run every head over what was verified."""
        heads = self._staging if self.staged else self._heads
        for index, head in enumerate(heads):
            head.verified = verified
            if self.staged:
                head.load_features(self._staged[index].batch, work)
                head.extend.launch(self._staged[index], work)
            else:
                head.extend.execute(work)
