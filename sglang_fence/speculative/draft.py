"""STANDALONE and EAGLE: a draft model that decodes ahead, and catches up behind verification.

| phase | runner | reads of shared buffers |
|---|---|---|
| draft, D decode steps | draft | ``req_to_token``, by its backend |
| target-verify | target | by its backend |
| draft-extend | draft | ``req_to_token`` again: the last reader |

A prefill of the target is followed by the draft model's own, which reads as well: the target's publishes nothing (R8),
the draft's is the step's last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.memory.kv_pool import DraftKV
from sglang_fence.models.draft import feature_draft
from sglang_fence.speculative.algorithm import SpecContext, SpeculativeAlgorithm
from sglang_fence.speculative.draft_runner import DraftRunner
from sglang_fence.speculative.worker import SpeculativeWorker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sglang_fence.contract import ForwardMode
    from sglang_fence.models.served import Activations, ServedModel
    from sglang_fence.runners.graph_runner import GraphRunner
    from sglang_fence.runners.model_runner import ModelRunner
    from sglang_fence.runners.prefill import PrefillRunner
    from sglang_fence.runners.work import ForwardWork


class Standalone(SpeculativeAlgorithm):
    """Drafts with a whole model of its own."""

    name = "standalone"

    def is_last_shared_read_phase(self, mode: ForwardMode, *, staged: bool = False) -> bool:  # noqa: ARG002 - never staged
        """Draft-extend reads last."""
        return mode.is_draft_extend()

    def make_worker(self, context: SpecContext) -> SpeculativeWorker:
        """See the base."""
        return DraftWorker(self, context, context.draft_model)


class Eagle(Standalone):
    """Drafts with a head that takes the target's hidden states."""

    name = "eagle"

    def make_worker(self, context: SpecContext) -> SpeculativeWorker:
        """See the base."""
        return DraftWorker(self, context, feature_draft(context.target.model))


class DraftWorker(SpeculativeWorker):
    """One draft model."""

    def __init__(self, algorithm: SpeculativeAlgorithm, context: SpecContext, model: ServedModel) -> None:
        super().__init__(algorithm, context)
        kv = DraftKV(self.target.device, model.kv_layout(), context.target_kv)
        self.drafter = DraftRunner(context, self.state, model, kv)

    @property
    def last_shared_read_runner(self) -> ModelRunner:
        """The draft's."""
        return self.drafter.runner

    @property
    def runners(self) -> Sequence[ModelRunner]:
        """Target and draft."""
        return (self.target, self.drafter.runner)

    def graph_runners(self) -> Sequence[GraphRunner | PrefillRunner]:
        """See the base."""
        return (*super().graph_runners(), self.drafter.decode, self.drafter.extend)

    def after_prefill(self, work: ForwardWork, prefilled: Activations) -> None:
        """Prefill the draft model too."""
        self.drafter.run_prefill(work, prefilled)

    def draft(self, work: ForwardWork) -> None:
        """Decode ahead, step by step."""
        last = self.state.width - 2
        for step in range(self.state.width - 1):
            self.drafter.run_decode(work, step, publish=step == last)

    def draft_extend(self, work: ForwardWork, verified: Activations) -> None:
        """Run the draft model over what was verified."""
        self.drafter.verified = verified
        self.drafter.extend.execute(work)
