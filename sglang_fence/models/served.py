"""``ServedModel``: a causal language model taken apart into the pieces that are launched one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from sglang_fence.memory.kv_pool import KVLayout

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sglang_fence.models.tokenizer import Tokenizer

ATTENTION_NAME = "sglang_fence_paged"
"""Under this name our attention is registered with Transformers."""

Attend = "Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]"


@dataclass(slots=True)
class Activations:
    """What one forward hands from kernel to kernel. Private to it, so no other stream sees it.

    ``hidden`` is ``[1, tokens, hidden_size]``, ``rotary`` the cosines and sines of the tokens' positions, ``logits``
    ``[lines, vocab]``.
    """

    hidden: torch.Tensor | None = None
    rotary: Any = None
    logits: torch.Tensor | None = None
    final: torch.Tensor | None = None
    """``[1, tokens, hidden_size]``: hidden states behind the last layer, before the final norm. Set by the head alone,
    so that a graph's replay leaves it the captured tensor whatever eager parts do to ``hidden``."""
    features: torch.Tensor | None = None
    """``[tokens, hidden_size]``, for draft models that take the target's hidden states as input."""

    def join(self, parts: Sequence[Activations]) -> None:
        """Take over the logits and hidden states of a batch that ran in parts, in order."""
        self.logits = torch.cat([part.logits for part in parts if part.logits is not None])
        self.final = torch.cat([part.final for part in parts if part.final is not None], dim=1)


@dataclass(slots=True)
class ServedModel:
    """A Llama-style model: ``embed``, then each layer, then ``head``, with a paged ``attend`` in between."""

    name: str
    causal_lm: Any
    """Transformers' model, for comparison and for its config."""
    tokenizer: Tokenizer
    windows: tuple[int | None, ...]
    """Sliding window a layer in tokens, the current one included; None for full attention."""
    context_len: int
    """The longest sequence in tokens."""
    eos_ids: frozenset[int]

    @property
    def num_layers(self) -> int:
        """Decoder layers."""
        return len(self.windows)

    @property
    def vocab_size(self) -> int:
        """Logits a line."""
        return int(self.causal_lm.config.vocab_size)

    def kv_layout(self) -> KVLayout:
        """What the layers keep."""
        config = self.causal_lm.config
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return KVLayout(
            windows=self.windows,
            kv_heads=int(config.num_key_value_heads),
            head_dim=int(head_dim),
            dtype=self.causal_lm.dtype,
        )

    def new_features(self, tokens: int) -> torch.Tensor | None:  # noqa: ARG002 - draft models look at it
        """A tensor for the features of ``tokens`` tokens; None for a model that takes none."""
        return None

    def embed(self, acts: Activations, tokens: torch.Tensor, positions: torch.Tensor) -> None:
        """Embed ``tokens`` (int64 ``[tokens]``) at ``positions`` (likewise)."""
        body = self.causal_lm.model
        acts.hidden = body.embed_tokens(tokens[None])
        acts.rotary = body.rotary_emb(acts.hidden, position_ids=positions[None])

    def layer(self, acts: Activations, index: int, positions: torch.Tensor, attend: Attend) -> None:  # type: ignore[valid-type]
        """Run one decoder layer; ``attend(layer, q, k, v)`` writes and reads the KV pool."""
        out = self.causal_lm.model.layers[index](
            acts.hidden,
            attention_mask=None,
            position_ids=positions[None],
            position_embeddings=acts.rotary,
            fence_attend=attend,
        )
        acts.hidden = out[0] if isinstance(out, tuple) else out

    def head(self, acts: Activations, lines: torch.Tensor | None) -> None:
        """Final norm and logits of the tokens at index ``lines`` (int64 ``[lines]``; None: all)."""
        if acts.hidden is None:
            msg = "head() before embed(): nothing to project"
            raise RuntimeError(msg)
        acts.final = acts.hidden
        hidden = acts.hidden[0] if lines is None else acts.hidden[0, lines]
        acts.logits = self.causal_lm.lm_head(self.causal_lm.model.norm(hidden))


def paged_attention(
    module: Any,  # noqa: ANN401 - any model's attention module
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,  # noqa: ARG001 - masks follow from the metadata
    *,
    fence_attend: Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor],
    **_: Any,  # noqa: ANN401 - scaling, dropout and what models add
) -> tuple[torch.Tensor, None]:
    """Transformers' attention function: hands over to the batch's backend.

    Args:
        module: the attention module; its ``layer_idx`` says which layer.
        query: ``[1, heads, tokens, head_dim]``; ``key`` and ``value`` with kv heads. Rotated already.
        key: see ``query``.
        value: see ``query``.
        attention_mask: unused.
        fence_attend: the backend, bound to the batch; takes and returns ``[tokens, heads, head_dim]``.

    Returns:
        ``[1, tokens, heads, head_dim]``, and no weights.
    """
    out = fence_attend(module.layer_idx, query[0].transpose(0, 1), key[0].transpose(0, 1), value[0].transpose(0, 1))
    return out[None], None
