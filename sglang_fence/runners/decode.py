"""``DecodeRunner``: one token for each request; the token to compute from comes through the relay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.contract import ForwardMode
from sglang_fence.runners.graph_runner import GraphRunner, Load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sglang_fence.attention.batch import ForwardBatch
    from sglang_fence.runners.model_runner import ModelRunner
    from sglang_fence.runners.work import ForwardWork


class DecodeRunner(GraphRunner):
    """Serves decode batches; see :class:`~sglang_fence.runners.graph_runner.GraphRunner`."""

    def __init__(self, runner: ModelRunner, graph: str, capture_bs: Sequence[int]) -> None:
        super().__init__(runner, graph, capture_bs, self._load, mode=ForwardMode.DECODE, width=1)

    def _load(self, batch: ForwardBatch, work: ForwardWork) -> Load:
        """Lengths are the host's; tokens are what the step before sampled, wherever it is by now."""
        packed, lines, relay = work.inputs.tensor[0], work.lines, self._runner.relay

        def body() -> None:
            batch.seq_lens[lines:] = 1
            batch.seq_lens[:lines] = packed[lines:]
            batch.positions.copy_(batch.seq_lens - 1)
            batch.tokens.copy_(relay.tensor[batch.req_rows])

        return body, ((relay, batch.rows),)
