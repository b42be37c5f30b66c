"""Draft models made for a target: heads of a few layers that share its embedding and its output projection.

Their weights are random, from a fixed seed: they stand for trained heads in what they read and launch, not in how often
they are right. (STANDALONE drafts with a whole model, which can be any checkpoint.)
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch

from sglang_fence.models.served import Activations, ServedModel


@dataclass(slots=True)
class FeatureDraft(ServedModel):
    """EAGLE's head: mixes each token's embedding with the target's hidden state of the token before it."""

    mix: Any = None
    """``Linear(2 · hidden_size → hidden_size)``."""

    def new_features(self, tokens: int) -> torch.Tensor | None:
        """Zeros, ``[tokens, hidden_size]``, for a loader to fill."""
        weight = self.mix.weight
        return torch.zeros((tokens, weight.shape[0]), dtype=weight.dtype, device=weight.device)

    def embed(self, acts: Activations, tokens: torch.Tensor, positions: torch.Tensor) -> None:
        """See the base; reads ``acts.features``."""
        ServedModel.embed(self, acts, tokens, positions)
        if acts.hidden is None or acts.features is None:
            msg = "a feature draft without features"
            raise RuntimeError(msg)
        acts.hidden = self.mix(torch.cat((acts.hidden, acts.features[None]), dim=-1))


def feature_draft(target: ServedModel, index: int = 0) -> FeatureDraft:
    """Make EAGLE's head number ``index`` for ``target``: one layer, full attention."""
    causal_lm = _head(target, layers=1, seed=1 + index)
    config, weight = causal_lm.config, causal_lm.lm_head.weight
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(101 + index)
        mix = torch.nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)
    mix = mix.to(device=weight.device, dtype=weight.dtype).requires_grad_(requires_grad=False)
    return FeatureDraft(
        f"{target.name}/eagle{index}",
        causal_lm,
        target.tokenizer,
        windows=(None,),
        context_len=target.context_len,
        eos_ids=target.eos_ids,
        mix=mix,
    )


def block_draft(target: ServedModel) -> ServedModel:
    """Make a block draft for ``target``: it reads the target's own keys and values of its first layers."""
    layers = min(2, target.num_layers)
    return ServedModel(
        f"{target.name}/block",
        _head(target, layers=layers, seed=51),
        target.tokenizer,
        windows=target.windows[:layers],
        context_len=target.context_len,
        eos_ids=target.eos_ids,
    )


def _head(target: ServedModel, *, layers: int, seed: int) -> Any:  # noqa: ANN401 - Transformers' model
    """A model of the target's class with layers of its own; embedding, norm and projection are the target's."""
    config = copy.deepcopy(target.causal_lm.config)
    config.num_hidden_layers = layers
    if getattr(config, "layer_types", None) is not None:
        config.layer_types = list(config.layer_types[:layers])
    weight = target.causal_lm.lm_head.weight
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        causal_lm = type(target.causal_lm)(config)
    causal_lm = causal_lm.to(device=weight.device, dtype=weight.dtype).eval()
    causal_lm.model.embed_tokens = target.causal_lm.model.embed_tokens
    causal_lm.model.norm = target.causal_lm.model.norm
    causal_lm.lm_head = target.causal_lm.lm_head
    return causal_lm.requires_grad_(requires_grad=False)
