"""``SpeculativeWorker``: the steps that all algorithms share. Prefill; and rounds: draft, verify, extend, accept."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from sglang_fence.contract import ForwardMode
from sglang_fence.runners.graph_runner import GraphRunner
from sglang_fence.runners.prefill import PrefillRunner
from sglang_fence.runners.step_result import Outbox, StepResult, copy_out
from sglang_fence.speculative.state import RoundState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sglang_fence.device.buffers import SharedBuffer
    from sglang_fence.device.protocol import Stream
    from sglang_fence.fence.publication import Mailbox
    from sglang_fence.models.served import Activations
    from sglang_fence.runners.model_runner import ModelRunner
    from sglang_fence.runners.work import ForwardWork
    from sglang_fence.speculative.algorithm import SpecContext, SpeculativeAlgorithm


class SpeculativeWorker(ABC):
    """Runs an algorithm's steps on the target's forward stream.

    Args:
        algorithm: answers for the fence.
        context: what to build from.
    """

    def __init__(self, algorithm: SpeculativeAlgorithm, context: SpecContext) -> None:
        target = context.target
        self.algorithm = algorithm
        self.target = target
        self.state = RoundState(target, context.draft_tokens, max(context.capture_bs))
        whole = algorithm.verifies_in_one_graph and context.graph == "breakable"
        self.verify = GraphRunner(
            target,
            "full" if whole else context.graph,
            context.capture_bs,
            self.state.load_verify,
            mode=ForwardMode.TARGET_VERIFY,
            width=self.state.width,
        )
        self.prefill = PrefillRunner(target, context.graph, context.prefill_tokens)
        probe = target.probe
        self._draft = probe.around("draft", self.draft)
        self._verify = probe.around("target_verify", self.verify.execute)
        self._extend = probe.around("draft_extend", self.draft_extend)
        self.staged = False
        """Whether the step just launched read all that its draft-extend needs before verification."""

    def capture(self) -> None:
        """Capture all graphs. The device must be idle."""
        for runner in self.graph_runners():
            runner.capture()

    def graph_runners(self) -> Sequence[GraphRunner | PrefillRunner]:
        """Every runner with graphs to capture."""
        return (self.verify, self.prefill)

    @property
    def forward_stream(self) -> Stream:
        """Where steps run."""
        return self.target.forward_stream

    @property
    def backend_name(self) -> str:
        """Name of the target's attention backend."""
        return self.target.attn_backend.name

    @property
    @abstractmethod
    def last_shared_read_runner(self) -> ModelRunner:
        """The runner whose phase is the last of the step just launched to read shared buffers (R3)."""

    @property
    @abstractmethod
    def runners(self) -> Sequence[ModelRunner]:
        """Target and draft runners."""

    @property
    def last_shared_read_mailbox(self) -> Mailbox:
        """Its mailbox."""
        return self.last_shared_read_runner.shared_read_done

    @property
    def mailboxes(self) -> Sequence[Mailbox]:
        """Every runner's."""
        return [runner.shared_read_done for runner in self.runners]

    def is_last_shared_read_phase(self, mode: ForwardMode) -> bool:
        """See :meth:`~sglang_fence.speculative.algorithm.SpeculativeAlgorithm.is_last_shared_read_phase`.

        A prefill's last reader is whichever runner prefills last, and that is for publication to know (R8).
        """
        return mode.is_prefill() or self.algorithm.is_last_shared_read_phase(mode, staged=self.staged)

    def run(self, work: ForwardWork, params: SharedBuffer | None) -> StepResult:
        """Enqueue a step on the current (forward) stream. Acceptance is greedy, so ``params`` must be None."""
        if params is not None:
            msg = "speculative rounds accept greedily; requests with a temperature are refused before they come here"
            raise ValueError(msg)
        outbox = Outbox()
        if work.mode is ForwardMode.EXTEND:
            self.staged = False
            self._run_prefill(work, outbox)
            return copy_out(self.target.device, self.target.probe, outbox, work.lines, 1)
        self._run_round(work, outbox)
        return copy_out(self.target.device, self.target.probe, outbox, work.lines, self.state.width)

    def _run_prefill(self, work: ForwardWork, outbox: Outbox) -> None:
        batch = self.prefill.execute_batch(work)
        self.after_prefill(work, batch.acts)
        if batch.last_tokens is None:
            msg = "an extend without last tokens"
            raise RuntimeError(msg)
        self.state.begin(work, batch.acts, batch.last_tokens, outbox)

    def _run_round(self, work: ForwardWork, outbox: Outbox) -> None:
        self.staged = self.stage(work)
        self._draft(work)
        verified = self._verify(work)
        self._extend(work, verified)
        self.state.accept(work, verified, outbox)
        self.after_accept(work, outbox)

    def after_prefill(self, work: ForwardWork, prefilled: Activations) -> None:  # noqa: B027 - some have nothing to do
        """Let drafts catch up with a prefill; the relays still hold what was before it."""

    def stage(self, work: ForwardWork) -> bool:  # noqa: ARG002 - multi-layer EAGLE looks at it
        """Decide whether the round's draft-extend reads all it needs before verification."""
        return False

    @abstractmethod
    def draft(self, work: ForwardWork) -> None:
        """Fill ``state.drafts``."""

    def draft_extend(self, work: ForwardWork, verified: Activations) -> None:  # noqa: B027 - some have nothing to do
        """Let drafts catch up with verification; the relays still hold what was before it."""

    def after_accept(self, work: ForwardWork, outbox: Outbox) -> None:  # noqa: B027 - some have nothing to do
        """Whatever the algorithm does with the accepted tokens."""
