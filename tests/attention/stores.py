"""Small pools for backends that are tested apart from an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from sglang_fence.memory.kv_pool import KVLayout, PagedKV
from sglang_fence.memory.request_pool import ReqToTokenPool, RowUpdates

if TYPE_CHECKING:
    from sglang_fence.device.protocol import DeviceModule

PAGE_SIZE = 4
HEADS, KV_HEADS, HEAD_DIM = 4, 2, 8


class Store(NamedTuple):
    """What a backend is made of."""

    device: DeviceModule
    requests: ReqToTokenPool
    kv: PagedKV


def tiny_store(device: DeviceModule, *, pages: int = 40, context_len: int = 64, window: int | None = None) -> Store:
    """Make pools for four layers and four requests."""
    layout = KVLayout((None, None, window, None), KV_HEADS, HEAD_DIM, torch.float32)
    return Store(
        device,
        ReqToTokenPool(device, max_running=4, context_len=context_len),
        PagedKV(device, layout, pages=pages, page_size=PAGE_SIZE, context_len=context_len, prefix_cache=False),
    )


def point(store: Store, row: int, pages: list[int], tokens: int) -> None:
    """Point ``tokens`` positions of ``row`` at ``pages``."""
    updates = RowUpdates()
    updates.add(row, 0, store.kv.slots(pages, 0, tokens))
    store.requests.write("assign_req_to_token", updates)
    store.device.synchronize()
