"""SGLang's memory as the audit sees it: tables that the schedule stream writes, what a forward writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from sglang_fence.audit.bits import same
from sglang_fence.audit.poison import OtherValues, shifted

if TYPE_CHECKING:
    from sglang_fence.sglang_plugin.audit.shapes import AuditedModelRunner

Outputs = dict[str, torch.Tensor]

_BUFFERS = ("k_buffer", "v_buffer", "kv_buffer")
_POOLS = ("full_kv_pool", "swa_kv_pool")


def tables(runner: AuditedModelRunner) -> dict[str, torch.Tensor]:
    """Return what is overwritten, by name."""
    found = {"req_to_token": runner.req_to_token_pool.req_to_token}
    mapping = getattr(runner.token_to_kv_pool_allocator, "full_to_swa_index_mapping", None)
    return found if mapping is None else found | {"full_to_swa": mapping}


def others(runner: AuditedModelRunner) -> dict[str, OtherValues]:
    """Return with what: slots of other tokens, from the first that isn't padding's to the pool's last."""
    pool, allocator = runner.token_to_kv_pool, runner.token_to_kv_pool_allocator
    page = max(1, int(pool.page_size))

    def moved(size: int) -> OtherValues:
        return lambda slots: shifted(slots, page, size, size // 3 + 1)

    found = {"req_to_token": moved(int(allocator.size))}
    swa = getattr(allocator, "size_swa", None)
    return found if swa is None else found | {"full_to_swa": moved(int(swa))}


def stores(pool: Any, prefix: str = "") -> Outputs:  # noqa: ANN401 - a KV pool of SGLang
    """Return the tensors of a KV pool, and of those that it is made of."""
    found: Outputs = {}
    for name in _BUFFERS:
        layers: list[torch.Tensor] = getattr(pool, name, None) or []
        found |= {f"{prefix}layer {layer} {name}": tensor for layer, tensor in enumerate(layers)}
    for name in _POOLS:
        inner = getattr(pool, name, None)
        if inner is not None:
            found |= stores(inner, f"{name} ")
    return found


class Memory:
    """Everything that a decode may change, as it was when this was made. The device must be idle."""

    def __init__(self, runner: AuditedModelRunner) -> None:
        self._padding = max(1, int(runner.token_to_kv_pool.page_size))
        self._stores = stores(runner.token_to_kv_pool)
        self._tables = tables(runner)
        self._saved = {name: tensor.clone() for name, tensor in (self._stores | self._tables).items()}

    def restore(self) -> None:
        """Put everything back, on the current stream."""
        for name, tensor in (self._stores | self._tables).items():
            tensor.copy_(self._saved[name])

    def now(self) -> Outputs:
        """Return what differs between runs if a read came too late: keys and values without padding's, and tables."""
        found = {name: tensor[self._padding :].clone() for name, tensor in self._stores.items()}
        return found | {name: tensor.clone() for name, tensor in self._tables.items()}

    def untouched(self) -> bool:
        """Whether everything is as it was."""
        return all(same(tensor, self._saved[name]) for name, tensor in (self._stores | self._tables).items())
