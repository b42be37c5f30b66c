"""``PageAllocator``: which pages are free. Host bookkeeping only; the device never sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.errors import ContractError

if TYPE_CHECKING:
    from collections.abc import Iterable


class PageAllocator:
    """Hands out page numbers 1 … ``pages``, last freed first; page 0 is the padding page."""

    def __init__(self, pages: int) -> None:
        self.pages = pages
        self._free = list(range(pages, 0, -1))
        self._is_free = bytearray([0] + [1] * pages)

    @property
    def available(self) -> int:
        """How many pages are free."""
        return len(self._free)

    def allocate(self, count: int) -> list[int] | None:
        """Take ``count`` pages, or None and take nothing when there are too few."""
        if count > len(self._free):
            return None
        taken = [self._free.pop() for _ in range(count)]
        for page in taken:
            self._is_free[page] = 0
        return taken

    def free(self, pages: Iterable[int]) -> None:
        """Give pages back.

        Raises:
            ContractError: a page is free already, or was never to be had: two requests would come to share it.
        """
        for page in pages:
            if not 0 < page <= self.pages or self._is_free[page]:
                msg = f"page {page} is freed twice, or isn't one of 1 to {self.pages}"
                raise ContractError(msg)
            self._is_free[page] = 1
            self._free.append(page)
