"""``ForwardBatch``: one forward's view of its batch, as a runner hands it to a backend."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sglang_fence.models.served import Activations

if TYPE_CHECKING:
    import torch

    from sglang_fence.contract import ForwardMode


@dataclass(slots=True, eq=False)
class ForwardBatch:
    """Tensors on the device, and what the host knows about them.

    A captured graph keeps one of these for good: its tensors are static, and :meth:`set_step` renews what the host
    knows at each replay. It holds no step buffer, only static tensors or (eager) views that the step record keeps.
    """

    mode: ForwardMode
    req_rows: torch.Tensor
    """int64 ``[lines]``: each line's row of ``req_to_token``; 0 for padding."""
    seq_lens: torch.Tensor
    """int64 ``[lines]``: tokens of the request after this forward; 1 for padding."""
    tokens: torch.Tensor
    """int64 ``[tokens]``."""
    positions: torch.Tensor
    """int64 ``[tokens]``."""
    token_lines: torch.Tensor | None = None
    """int64 ``[tokens]``: the line a token belongs to; None where each line has one token (decode)."""
    width: int = 0
    """Tokens a line, where each line has as many (decode: 1, verify: drafts + 1); 0 where that differs (extend)."""
    last_tokens: torch.Tensor | None = None
    """int64 ``[lines]``: index of each line's last token; None where each line has one token."""
    causal: bool = True
    """Whether a token sees none after it; a block draft's tokens see one another."""
    static: bool = False
    """Whether shapes are fixed by a captured graph, so that lengths known to the host must not shape the work."""

    step: int = -1
    lines: int = 0
    """Real lines; the rest is padding."""
    rows: tuple[int, ...] = ()
    """Rows of ``req_to_token`` that the lines read."""
    pages: tuple[int, ...] = ()
    """Pages that the lines read or write. The padding page isn't among them: all may write it, none looks at it."""
    written: tuple[int, ...] = ()
    """Those of ``pages`` that the lines write."""
    query_lens: tuple[int, ...] = ()
    """New tokens a line (extend)."""
    kv_lens: tuple[int, ...] = ()
    """``seq_lens``, as the host knows them (extend)."""

    acts: Activations = field(default_factory=Activations)
    metadata: dict[object, Any] = field(default_factory=dict[object, Any])
    """By backend; made by its initialisation hooks for this batch alone, so none can be mistaken for another's."""
    whole: ForwardBatch | None = None
    """What this one is a half of, if two-batch overlap made it."""

    def read_rows(self) -> tuple[int, ...]:
        """Rows of ``req_to_token``; asked at each replay. A half answers for the whole."""
        return self.rows if self.whole is None else self.whole.read_rows()

    def read_pages(self) -> tuple[int, ...]:
        """Pages; asked at each replay. A half answers for the whole."""
        return self.pages if self.whole is None else self.whole.read_pages()

    def written_pages(self) -> tuple[int, ...]:
        """Pages that are written; asked at each replay. A half answers for the whole."""
        return self.written if self.whole is None else self.whole.written_pages()
