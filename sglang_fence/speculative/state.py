"""``RoundState``: what one round leaves for the next, on the device, so that the host never waits in between.

Positions: ``P`` is where a request's newest token stands; its keys and values aren't computed yet. A round drafts
tokens for P + 1 … P + D, verifies P … P + D, and accepts the first ``a`` drafts: P moves by a + 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from sglang_fence.device.buffers import SharedBuffer

if TYPE_CHECKING:
    from sglang_fence.attention.batch import ForwardBatch
    from sglang_fence.device.protocol import Access
    from sglang_fence.models.served import Activations
    from sglang_fence.runners.graph_runner import Load
    from sglang_fence.runners.model_runner import ModelRunner
    from sglang_fence.runners.step_result import Outbox
    from sglang_fence.runners.work import ForwardWork


class RoundState:
    """Relays by row of ``req_to_token``, and this round's drafts by line.

    Args:
        target: its relay carries the newest tokens.
        draft_tokens: drafts a round.
        lines: the most requests of a round.
    """

    def __init__(self, target: ModelRunner, draft_tokens: int, lines: int) -> None:
        device, rows = target.device, target.requests.max_running + 1
        self.device = device
        self.relay = target.relay
        self.width = draft_tokens + 1
        # P a row; row 0, padding's, stays 0.
        newest = torch.zeros((rows,), dtype=torch.int64, device=device.torch_device)
        self.newest = SharedBuffer(device, "relay_positions", newest)
        # The target's hidden state before P a row, for drafts that take features.
        hidden = target.model.causal_lm.config.hidden_size
        features = torch.zeros((rows, hidden), dtype=target.model.causal_lm.dtype, device=device.torch_device)
        self.features = SharedBuffer(device, "relay_features", features)
        # Private to the forward stream.
        self.drafts = torch.zeros((lines, draft_tokens), dtype=torch.int64, device=device.torch_device)

    def accesses(self, work: ForwardWork) -> tuple[Access, ...]:
        """The relays, at the rows of ``work``."""
        rows = (*work.rows, 0)
        return (self.relay, rows), (self.newest, rows), (self.features, rows)

    def load_verify(self, batch: ForwardBatch, work: ForwardWork) -> Load:
        """Fill a batch with the newest token and the drafts, at P … P + D."""

        def body() -> None:
            newest = self.newest.tensor[batch.req_rows]
            steps = torch.arange(self.width, device=newest.device)
            lines = len(batch.req_rows)
            batch.seq_lens.copy_(newest + self.width)
            batch.positions.copy_((newest[:, None] + steps).flatten())
            first = self.relay.tensor[batch.req_rows]
            batch.tokens.copy_(torch.cat((first[:, None], self.drafts[:lines]), dim=1).flatten())

        return body, self.accesses(work)[:2]

    def accept(self, work: ForwardWork, verified: Activations, outbox: Outbox) -> None:
        """Launch the kernel that accepts greedily, and relays the newest token, its position and features."""
        lines, width = work.lines, self.width
        inputs = work.inputs.tensor[0, :lines]

        def body() -> None:
            if verified.logits is None or verified.final is None:
                msg = "acceptance before verification"
                raise RuntimeError(msg)
            best = verified.logits.argmax(-1).unflatten(0, (-1, width))[:lines]
            right = (self.drafts[:lines] == best[:, :-1]).long().cumprod(1).sum(1)
            outbox.tokens = best
            outbox.counts = right + 1
            self.relay.tensor[inputs] = best.gather(1, right[:, None])[:, 0]
            self.newest.tensor[inputs] += right + 1
            hidden = verified.final[0].unflatten(0, (-1, width))[:lines]
            self.features.tensor[inputs] = hidden[torch.arange(lines, device=right.device), right]

        accesses = self.accesses(work)
        self.device.launch("accept", body, reads=((work.inputs, (0,)), *accesses), writes=accesses)

    def begin(self, work: ForwardWork, prefilled: Activations, last_tokens: torch.Tensor, outbox: Outbox) -> None:
        """Launch the kernel that ends a prefill: its first token, its position and features go into the relays.

        ``last_tokens`` are the indices of the lines' last tokens in ``prefilled.final``.
        """
        lines = work.lines
        inputs = work.inputs.tensor[0]

        def body() -> None:
            if prefilled.logits is None or prefilled.final is None:
                msg = "sampling before logits"
                raise RuntimeError(msg)
            rows = inputs[:lines]
            tokens = prefilled.logits[:lines].argmax(-1)
            outbox.tokens = tokens[:, None]
            self.relay.tensor[rows] = tokens
            self.newest.tensor[rows] = inputs[lines : 2 * lines]
            self.features.tensor[rows] = prefilled.final[0, last_tokens[:lines]]

        accesses = self.accesses(work)
        self.device.launch("sample", body, reads=((work.inputs, (0,)),), writes=accesses)
