"""``PagedKV``: keys and values by page, and the one place that hands pages out and takes them back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch

from sglang_fence.device.buffers import SharedBuffer
from sglang_fence.memory.allocator import PageAllocator
from sglang_fence.memory.prefix_cache import PrefixCache
from sglang_fence.memory.sliding_window import SlidingWindowPool

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sglang_fence.device.protocol import DeviceModule

_SWA_SHARE = 0.8
"""SWA pages as a share of the full ones: windows are short, but a prompt is mapped whole until its prefill is done."""


@dataclass(frozen=True, slots=True)
class KVLayout:
    """What one layer keeps, and where.

    ``windows`` has an entry a layer: its sliding window in tokens, the current one included, or None for a full layer.
    """

    windows: tuple[int | None, ...]
    kv_heads: int
    head_dim: int
    dtype: torch.dtype

    @property
    def window(self) -> int | None:
        """The window of the sliding layers, None when there are none."""
        return next((window for window in self.windows if window is not None), None)

    @property
    def token_bytes(self) -> int:
        """What one token's keys and values take in all layers."""
        return 2 * len(self.windows) * self.kv_heads * self.head_dim * self.dtype.itemsize


class KVStore(Protocol):
    """What an attention backend asks of a KV pool."""

    @property
    def layout(self) -> KVLayout:
        """What each layer keeps."""

    @property
    def page_size(self) -> int:
        """Tokens a page."""

    @property
    def swa(self) -> SlidingWindowPool | None:
        """The mapping of sliding layers, where there are any."""

    @property
    def buffer(self) -> SharedBuffer:
        """What kernels declare; its rows are pages."""

    def layer(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of a layer, each ``[slots, kv_heads, head_dim]``."""


class DraftKV:
    """A draft model's keys and values: storage of its own, at the target's slots.

    Pages are the target's, so whoever owns a page owns it in both. Sliding layers keep all of theirs too.
    """

    swa = None

    def __init__(self, device: DeviceModule, layout: KVLayout, target: PagedKV, name: str = "draft_kv_cache") -> None:
        self.layout = layout
        self.page_size = target.page_size
        pages = target.allocator.pages
        self._layers = [_storage(device, layout, pages, target.page_size) for _ in layout.windows]
        self.buffer = SharedBuffer(device, name, torch.zeros((pages + 1, 0), device=device.torch_device))

    def layer(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """See :class:`KVStore`."""
        _ = self.buffer.tensor  # the access check
        return self._layers[index]


def _storage(device: DeviceModule, layout: KVLayout, pages: int, page_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    shape = (2, pages + 1, page_size, layout.kv_heads, layout.head_dim)
    keys, values = torch.zeros(shape, dtype=layout.dtype, device=device.torch_device).flatten(1, 2)
    return keys, values


class PagedKV:
    """The KV pool: storage, allocator, prefix cache, sliding-window pool.

    Args:
        device: where it lives.
        layout: what the model's layers keep.
        pages: usable pages; one more is made for padding.
        page_size: tokens a page.
        context_len: the longest request in tokens; the SWA pool must hold one.
        prefix_cache: keep finished requests' pages for later prompts with the same beginning.
    """

    def __init__(
        self,
        device: DeviceModule,
        layout: KVLayout,
        *,
        pages: int,
        page_size: int,
        context_len: int,
        prefix_cache: bool,
    ) -> None:
        self.layout = layout
        self.page_size = page_size
        self.allocator = PageAllocator(pages)
        self.swa: SlidingWindowPool | None = None
        swa_pages = 0
        if layout.window is not None:
            longest = -(-context_len // page_size)
            swa_pages = min(pages, max(longest, int(pages * _SWA_SHARE)))
            self.swa = SlidingWindowPool(device, full_pages=pages, swa_pages=swa_pages, window=layout.window)
        self.cache = PrefixCache(page_size, self._drop_cached) if prefix_cache else None
        self._layers = [
            _storage(device, layout, pages if window is None else swa_pages, page_size) for window in layout.windows
        ]
        # Rows are pages. The layers' storage is reached through layer(); this is what kernels of full layers declare.
        marks = torch.zeros((pages + 1, 0), device=device.torch_device)
        self.buffer = SharedBuffer(device, "kv_cache", marks)

    def layer(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of one layer, each ``[slots, kv_heads, head_dim]``; slot = page · page_size + offset.

        For a sliding layer the pages are SWA pages.
        """
        swa = None if self.layout.windows[index] is None else self.swa
        _ = (self.buffer if swa is None else swa.buffer).tensor  # the access check
        return self._layers[index]

    def clear(self, slots: torch.Tensor) -> None:
        """Zero keys and values at ``slots`` (int64, full slots) in every layer; for kernels to call."""
        _ = self.buffer.tensor  # the access check
        for (keys, values), window in zip(self._layers, self.layout.windows, strict=True):
            at = slots
            if window is not None and self.swa is not None:
                at = self.swa.full_to_swa.tensor[slots // self.page_size] * self.page_size + slots % self.page_size
            keys[at] = 0
            values[at] = 0

    def pages_for(self, tokens: int) -> int:
        """How many pages ``tokens`` tokens take."""
        return -(-tokens // self.page_size)

    def slots(self, pages: Sequence[int], first: int, last: int) -> list[int]:
        """Slots of positions ``first`` … ``last`` − 1 of a request that owns ``pages``, in order."""
        size = self.page_size
        return [pages[position // size] * size + position % size for position in range(first, last)]

    @property
    def evictable(self) -> int:
        """Cached pages that no request holds."""
        return self.cache.evictable if self.cache is not None else 0

    def can_allocate(self, count: int) -> bool:
        """Whether ``count`` pages could be had, evicting cached ones if need be."""
        if count > self.allocator.available + self.evictable:
            return False
        return self.swa is None or count <= self.swa.allocator.available + self._swa_evictable()

    def allocate(self, count: int) -> list[int] | None:
        """Take ``count`` pages, mapped for the sliding layers too; None and no change when they can't be had.

        Raises nothing: exhaustion is an ordinary answer, and the scheduler's to deal with.
        """
        if count == 0:
            return []
        if not self.can_allocate(count):
            return None
        if self.cache is not None:
            short = count - self.allocator.available
            if short > 0:
                self.cache.evict(short)
            if self.swa is not None and count > self.swa.allocator.available:
                self.swa.evict(self.cache.idle_window_pages(self.swa.is_mapped, count - self.swa.allocator.available))
        pages = self.allocator.allocate(count)
        if pages is not None and self.swa is not None:
            self.swa.map(pages)
        return pages

    def free(self, pages: Iterable[int]) -> None:
        """Give pages back that no request and no cache holds any more."""
        pages = list(pages)
        if self.swa is not None:
            self.swa.forget(pages)
        self.allocator.free(pages)

    def _drop_cached(self, page: int) -> None:
        self.free((page,))

    def _swa_evictable(self) -> int:
        if self.cache is None or self.swa is None:
            return 0
        return len(self.cache.idle_window_pages(self.swa.is_mapped, None))
