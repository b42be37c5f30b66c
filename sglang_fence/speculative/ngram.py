"""NGRAM: drafts from the request's own history; no draft model.

| phase | runner | reads of shared buffers |
|---|---|---|
| draft | – | ``token_history``, which the schedule stream fills at admission |
| target-verify | target | by its backend |
| commit | – | ``req_to_token``, to find the slots of rejected drafts: verification is *not* the last reader |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from sglang_fence.speculative.algorithm import SpecContext, SpeculativeAlgorithm
from sglang_fence.speculative.worker import SpeculativeWorker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sglang_fence.device.protocol import Access
    from sglang_fence.runners.model_runner import ModelRunner
    from sglang_fence.runners.step_result import Outbox
    from sglang_fence.runners.work import ForwardWork

_NOTHING = 0
"""What is drafted where the history says nothing; verification will mostly reject it."""


class Ngram(SpeculativeAlgorithm):
    """No phase is sound to stop at: the commit behind verification reads again. Every round is coarse."""

    name = "ngram"

    def make_worker(self, context: SpecContext) -> SpeculativeWorker:
        """See the base."""
        return NgramWorker(self, context)


class NgramWorker(SpeculativeWorker):
    """Looks the newest two tokens up in the request's history and drafts what followed them last time."""

    def __init__(self, algorithm: SpeculativeAlgorithm, context: SpecContext) -> None:
        super().__init__(algorithm, context)
        self._kv = context.target_kv
        self._history = self.target.requests.keep_history()

    @property
    def last_shared_read_runner(self) -> ModelRunner:
        """The target's, which publishes; that it isn't the last reader is the algorithm's answer."""
        return self.target

    @property
    def runners(self) -> Sequence[ModelRunner]:
        """The target's alone."""
        return (self.target,)

    def draft(self, work: ForwardWork) -> None:
        """Note the newest token in the history, then look it up."""
        state, lines = self.state, work.lines
        inputs = work.inputs.tensor[0, :lines]

        def body() -> None:
            newest = state.newest.tensor[inputs]
            history = self._history.tensor
            history[inputs, newest] = state.relay.tensor[inputs]
            state.drafts[:lines] = look_up(history[inputs], newest, state.drafts.shape[1])

        rows = (self._history, work.rows)
        reads = ((work.inputs, (0,)), rows, *state.accesses(work)[:2])
        self.target.device.launch("ngram_lookup", body, reads=reads, writes=(rows,))

    def after_accept(self, work: ForwardWork, outbox: Outbox) -> None:
        """Note the accepted drafts, and clear the keys and values of the rejected ones."""
        state, lines, requests, kv = self.state, work.lines, self.target.requests, self._kv
        inputs = work.inputs.tensor[0, :lines]

        def body() -> None:
            if outbox.tokens is None or outbox.counts is None:
                msg = "a commit before acceptance"
                raise RuntimeError(msg)
            steps = torch.arange(state.width, device=inputs.device)
            newest = state.newest.tensor[inputs] - outbox.counts  # as it was when the round began
            at = newest[:, None] + 1 + steps
            history = self._history.tensor
            kept = torch.where(steps < outbox.counts[:, None], outbox.tokens, history[inputs].gather(1, at))
            history[inputs[:, None], at] = kept
            table = requests.req_to_token.tensor
            slots = table[inputs[:, None], newest[:, None] + steps]
            # An accepted position's slot becomes the padding slot, which may be cleared at any time.
            rejected = torch.where(steps < outbox.counts[:, None], 0, slots).flatten()
            kv.clear(rejected)

        pages = (kv.buffer, work.pages)
        reads: list[Access] = [
            (work.inputs, (0,)),
            (requests.req_to_token, work.rows),
            (self._history, work.rows),
            pages,
        ]
        if kv.swa is not None:
            reads.append((kv.swa.full_to_swa, work.pages))
        reads.extend(state.accesses(work)[:2])
        writes = ((self._history, work.rows), (kv.buffer, (*work.pages, 0)))
        self.target.device.launch("ngram_commit", body, reads=reads, writes=writes)


def look_up(history: torch.Tensor, newest: torch.Tensor, drafts: int) -> torch.Tensor:
    """Draft what followed the newest two tokens the last time they occurred.

    Args:
        history: int64 ``[lines, length]``: tokens by position.
        newest: int64 ``[lines]``: position of the newest token.
        drafts: how many to draft.

    Returns:
        int64 ``[lines, drafts]``.
    """
    length = history.shape[1]
    position = torch.arange(length, device=history.device)
    now = history.gather(1, newest[:, None])
    before = history.gather(1, (newest[:, None] - 1).clamp_min(0))
    same = (history == now) & (history.roll(1, 1) == before)
    earlier = (position >= 1) & (position < newest[:, None]) & (newest[:, None] >= 1)
    last = torch.where(same & earlier, position, -1).amax(1, keepdim=True)
    follow = last + 1 + torch.arange(drafts, device=history.device)
    known = (last >= 0) & (follow <= newest[:, None])
    return torch.where(known, history.gather(1, follow.clamp(0, length - 1)), _NOTHING)
