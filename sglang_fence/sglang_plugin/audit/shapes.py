"""What the audit asks of SGLang's objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from sglang_fence.device.protocol import Event
    from sglang_fence.sglang_plugin.words import Named


class AuditedBackend(Protocol):
    """An attention backend."""

    def shared_read_ends(self, mode: Any, /) -> Named:  # noqa: ANN401 - a forward mode of SGLang
        """What it declares."""


class AuditedModelRunner(Protocol):
    """A model runner: its pools, and whose model it is."""

    is_draft_worker: bool
    req_to_token_pool: Any
    token_to_kv_pool: Any
    token_to_kv_pool_allocator: Any
    server_args: Any


class AuditedRunner(Protocol):
    """A decode graph runner."""

    model_runner: AuditedModelRunner
    backend: Any
    in_graph_metadata_prep_done: Event | None
    _resolve_shared_read_ends: Callable[..., Named]
    _replay_attn_backend: Callable[[], AuditedBackend]


class AuditedBatch(Protocol):
    """A forward batch."""

    forward_mode: Named
    batch_size: int
    req_pool_indices: torch.Tensor
