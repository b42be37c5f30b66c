"""``SlidingWindowPool``: a smaller pool for sliding-window layers, and the mapping into it.

A request's pages are *full* pages. Layers with a window keep their keys and values in *SWA* pages instead, found
through ``full_to_swa``. A page that has left the window is unmapped in result processing and its SWA page goes back:
that write is one of the hazards the fence exists for, since the running forward still translates through the mapping.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from sglang_fence.device.buffers import SharedBuffer
from sglang_fence.memory.allocator import PageAllocator
from sglang_fence.memory.request_pool import upload

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sglang_fence.device.protocol import DeviceModule


class SlidingWindowPool:
    """Maps full pages to SWA pages.

    ``full_to_swa`` is ``int64[full_pages + 1]``: a row a full page, 0 where it isn't mapped (the padding page).
    """

    def __init__(self, device: DeviceModule, *, full_pages: int, swa_pages: int, window: int) -> None:
        self._device = device
        self.window = window
        self.full_to_swa = SharedBuffer(
            device,
            "full_to_swa",
            torch.zeros((full_pages + 1,), dtype=torch.int64, device=device.torch_device),
        )
        self.allocator = PageAllocator(swa_pages)
        marks = torch.zeros((swa_pages + 1, 0), device=device.torch_device)
        self.buffer = SharedBuffer(device, "swa_kv_cache", marks)
        """What kernels of sliding layers declare; its rows are SWA pages."""
        self._swa_of: dict[int, int] = {}

    def is_mapped(self, page: int) -> bool:
        """Whether the full page has an SWA page."""
        return page in self._swa_of

    def swa_pages(self, pages: Iterable[int]) -> tuple[int, ...]:
        """The SWA pages of those full pages that have one."""
        return tuple(self._swa_of[page] for page in pages if page in self._swa_of)

    def first_needed_page(self, next_position: int, page_size: int) -> int:
        """Index of the first page of a request that a query at ``next_position`` or later can still see."""
        return max(0, next_position - self.window + 1) // page_size

    def usable_prefix(self, pages: Sequence[int], page_size: int) -> int:
        """How many of a cached prefix's ``pages`` a new request may use: its window's tail must still be mapped."""
        for count in range(len(pages), 0, -1):
            first = self.first_needed_page(count * page_size, page_size)
            if all(self.is_mapped(page) for page in pages[first:count]):
                return count
        return 0

    def map(self, pages: Sequence[int]) -> None:
        """Give each full page an SWA page (the caller has checked ``allocator.available``) and write the mapping."""
        if not pages:
            return
        taken = self.allocator.allocate(len(pages))
        if taken is None:
            msg = f"map({len(pages)} pages) with {self.allocator.available} SWA pages free: check before mapping"
            raise RuntimeError(msg)
        self._swa_of.update(zip(pages, taken, strict=True))
        self._write("map_full_to_swa", pages, taken)

    def evict(self, pages: Iterable[int]) -> None:
        """Unmap the full pages and free their SWA pages."""
        mapped = [page for page in pages if page in self._swa_of]
        if not mapped:
            return
        self.allocator.free(self._swa_of.pop(page) for page in mapped)
        self._write("evict_swa", mapped, [0] * len(mapped))

    def move(self, pairs: Sequence[tuple[int, int]]) -> None:
        """For each (own page, cached page) of the same tokens: let an unmapped cached page take over the own mapping.

        The prefix cache may have given up a page's window contents; a live request pointed at it brings its own.
        """
        moving = [(own, cached) for own, cached in pairs if own in self._swa_of and cached not in self._swa_of]
        if not moving:
            return
        for own, cached in moving:
            self._swa_of[cached] = self._swa_of.pop(own)
        cached_pages = [cached for _, cached in moving]
        self._write("map_full_to_swa", cached_pages, [self._swa_of[page] for page in cached_pages])

    def forget(self, pages: Iterable[int]) -> None:
        """Free the SWA pages of full pages that are freed themselves: the next owner writes the mapping anew."""
        self.allocator.free(self._swa_of.pop(page) for page in pages if page in self._swa_of)

    def _write(self, kernel: str, pages: Sequence[int], targets: Sequence[int]) -> None:
        packed = upload(self._device, torch.tensor([list(pages), list(targets)], dtype=torch.int64))
        mapping = self.full_to_swa

        def body() -> None:
            mapping.tensor[packed[0]] = packed[1]

        self._device.launch(kernel, body, writes=((mapping, sorted(pages)),))
