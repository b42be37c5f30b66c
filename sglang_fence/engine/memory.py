"""``RequestMemory``: rows and pages as requests take, grow, share and give them back. All writes: schedule stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.memory.request_pool import RowUpdates

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sglang_fence.engine.requests import Request
    from sglang_fence.memory.kv_pool import PagedKV
    from sglang_fence.memory.request_pool import ReqToTokenPool


class RequestMemory:
    """Joins the request pool, the KV pool, its prefix cache and its sliding window."""

    def __init__(self, requests: ReqToTokenPool, kv: PagedKV) -> None:
        self.requests = requests
        self.kv = kv
        self.cached_tokens = 0
        """Tokens whose prefill the prefix cache saved."""

    def most_tokens(self) -> int:
        """The longest request that the pools could ever hold, alone."""
        pages = self.kv.allocator.pages
        if self.kv.swa is not None:
            pages = min(pages, self.kv.swa.allocator.pages)
        return pages * self.kv.page_size

    def admit(self, request: Request, reserve: int, updates: RowUpdates) -> bool:
        """Give a waiting request a row, its cached prefix, and pages for all it fills.

        Args:
            request: has no memory yet; on success its ``kv_len`` is the length of the cached prefix.
            reserve: pages to leave alone.
            updates: takes the prefix's part of the row.

        Returns:
            False, with nothing changed, where rows or pages are short.
        """
        kv = self.kv
        if not self.requests.available:
            return False
        fill = request.prompt + request.output
        if kv.cache is not None:
            request.path = kv.cache.match(fill, self._usable)
        cached = request.path.pages
        need = kv.pages_for(len(fill)) - len(cached)
        if not kv.can_allocate(need + reserve):
            self._let_go(request)
            return False
        fresh, row = kv.allocate(need), self.requests.allocate()
        if fresh is None or row is None:
            msg = "pages or rows vanished between the check and the allocation"
            raise RuntimeError(msg)
        request.row = row
        request.fill = fill
        request.pages = cached + fresh
        request.kv_len = len(cached) * kv.page_size
        self.cached_tokens += request.kv_len
        request.kv_most = request.kv_len
        request.window_passed = 0
        request.pointed = 0
        self.point(request, request.kv_len, updates)
        self._pass_window(request)
        return True

    def point(self, request: Request, last: int, updates: RowUpdates) -> None:
        """Point positions up to ``last`` − 1 of the request's row at its pages, as far as they aren't yet."""
        if last > request.pointed:
            updates.add(request.row, request.pointed, self.kv.slots(request.pages, request.pointed, last))
            request.pointed = last

    def grow(self, requests: Sequence[Request], tokens: int) -> bool:
        """Give each request the pages that ``tokens`` more tokens may take; all of them or none."""
        short = [self.kv.pages_for(request.kv_most + tokens) - len(request.pages) for request in requests]
        pages = self.kv.allocate(sum(max(0, count) for count in short))
        if pages is None:
            return False
        for request, count in zip(requests, short, strict=True):
            for _ in range(count):
                request.pages.append(pages.pop())
        return True

    def live_pages(self, requests: Iterable[Request]) -> tuple[int, ...]:
        """Pages that a forward of ``requests`` reads or writes."""
        return tuple(page for request in requests for page in request.pages[: self.kv.pages_for(request.pointed)])

    def share(self, request: Request, tokens: Sequence[int], updates: RowUpdates) -> None:
        """Cache the whole pages of ``tokens`` (all computed); where others cached the same, use theirs.

        ``updates`` takes the positions of the live row that move to other pages: a write of what a forward may read.
        """
        kv = self.kv
        if kv.cache is None:
            return
        replaced = kv.cache.insert(tokens, request.pages, request.path)
        if kv.swa is not None:
            kv.swa.move([(own, cached) for _, own, cached in replaced])
        for index, _, cached in replaced:
            request.pages[index] = cached
            first = index * kv.page_size
            updates.add(request.row, first, kv.slots(request.pages, first, first + kv.page_size))
        kv.free(own for _, own, _ in replaced)
        self._pass_window(request)

    def slide(self, requests: Iterable[Request]) -> None:
        """Unmap the pages that have left the sliding windows of ``requests``.

        What the *next* step can't see goes, though the running forward still may: the fence has ordered its reads.
        """
        swa = self.kv.swa
        if swa is None:
            return
        gone: list[int] = []
        for request in requests:
            first = swa.first_needed_page(request.kv_len, self.kv.page_size)
            own = max(request.window_passed, len(request.path.nodes))
            gone.extend(request.pages[own:first])
            request.window_passed = max(request.window_passed, first)
            self._pass_window(request)
        swa.evict(gone)

    def release(self, request: Request, computed: Sequence[int] = ()) -> None:
        """Take everything back; ``computed`` tokens stay cached for later prompts.

        The row is free at once, and its next owner may write it in the next step's preparation.
        """
        if computed:
            self.share(request, computed, RowUpdates())  # the row is given up: nothing to rewrite
        own = request.pages[len(request.path.nodes) :]
        self._let_go(request)
        self.kv.free(own)
        self.requests.free(request.row)
        request.row = 0
        request.pages = []
        request.kv_len = request.kv_most = request.pointed = 0
        request.window_passed = 0

    def _pass_window(self, request: Request) -> None:
        """Tell the cache what of its pages has left the request's window; the request's own are :meth:`slide`'s."""
        if self.kv.swa is not None and self.kv.cache is not None:
            first = self.kv.swa.first_needed_page(request.kv_len, self.kv.page_size)
            self.kv.cache.pass_window(request.path, first)

    def _let_go(self, request: Request) -> None:
        if self.kv.cache is not None:
            self.kv.cache.release(request.path)

    def _usable(self, pages: list[int]) -> int:
        return len(pages) if self.kv.swa is None else self.kv.swa.usable_prefix(pages, self.kv.page_size)
