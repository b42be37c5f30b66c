"""Splitting a batch in two, by lines, for two-batch overlap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sglang_fence.attention.batch import ForwardBatch
from sglang_fence.models.served import Activations

if TYPE_CHECKING:
    import torch

    from sglang_fence.device.protocol import DeviceModule


@dataclass(frozen=True, slots=True)
class Halves:
    """Both halves of ``whole``: views of its tensors, so that what is loaded there is loaded here.

    Only the second half's line and token numbers are its own: they count from its first line and token on.
    """

    whole: ForwardBatch
    first: ForwardBatch
    second: ForwardBatch
    lines: int
    """Lines of the first half, padding included."""
    tokens: int
    """Tokens of the first half."""

    def load(self, device: DeviceModule) -> None:
        """Renew what the host knows of this step, and launch what the second half counts anew."""
        whole, lines = self.whole, self.lines
        real = min(whole.lines, lines)
        for half, own in ((self.first, slice(lines)), (self.second, slice(lines, None))):
            half.step = whole.step
            half.rows, half.pages = whole.read_rows(), whole.read_pages()
            half.query_lens, half.kv_lens = whole.query_lens[own], whole.kv_lens[own]
        self.first.lines, self.second.lines = real, whole.lines - real
        renumbered = [
            (own, theirs[start:], offset)
            for own, theirs, start, offset in (
                (self.second.token_lines, whole.token_lines, self.tokens, lines),
                (self.second.last_tokens, whole.last_tokens, lines, self.tokens),
            )
            if own is not None and theirs is not None
        ]

        def body() -> None:
            for own, theirs, offset in renumbered:
                own.copy_(theirs - offset)

        if renumbered:
            device.launch("split_batch", body)


def halves(batch: ForwardBatch) -> Halves | None:
    """Split ``batch`` in the middle of its lines; None where there are less than two.

    An extend's lines differ in length, which only the host of an eager forward knows; a static one isn't split.
    """
    count = len(batch.seq_lens)
    if count < 2 or (batch.static and not batch.width):  # noqa: PLR2004 - two halves
        return None
    lines = count // 2
    tokens = lines * batch.width if batch.width else sum(batch.query_lens[:lines])
    return Halves(
        batch,
        _part(batch, slice(lines), slice(tokens), renumber=False),
        _part(batch, slice(lines, None), slice(tokens, None), renumber=True),
        lines,
        tokens,
    )


def _part(batch: ForwardBatch, lines: slice, tokens: slice, *, renumber: bool) -> ForwardBatch:
    def numbers(values: torch.Tensor | None, own: slice) -> torch.Tensor | None:
        if values is None:
            return None
        return values[own].clone() if renumber else values[own]

    features = batch.acts.features
    return ForwardBatch(
        batch.mode,
        req_rows=batch.req_rows[lines],
        seq_lens=batch.seq_lens[lines],
        tokens=batch.tokens[tokens],
        positions=batch.positions[tokens],
        token_lines=numbers(batch.token_lines, tokens),
        width=batch.width,
        last_tokens=numbers(batch.last_tokens, lines),
        causal=batch.causal,
        static=batch.static,
        acts=Activations(features=None if features is None else features[tokens]),
        whole=batch,
    )
