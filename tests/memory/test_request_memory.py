"""``RequestMemory`` under any order of calls: pages have one owner, rows tell the truth, nothing leaks.

The machine plays scheduler and forward at once: what a forward would write into a slot is noted as the tokens that the
keys and values depend on, so a page that two requests come to share wrongly shows as foreign contents.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, ClassVar

import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.engine.memory import RequestMemory
from sglang_fence.engine.requests import Request, SamplingParams
from sglang_fence.memory.kv_pool import KVLayout, PagedKV
from sglang_fence.memory.request_pool import ReqToTokenPool, RowUpdates

if TYPE_CHECKING:
    from unittest import TestCase

CONTEXT, PAGES, ROWS = 20, 14, 3
BEGINNINGS = ((0,) * 12, (0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0))
"""Few, so that requests come to share pages often."""

TOKENS = st.builds(lambda one, length: list(one[:length]), st.sampled_from(BEGINNINGS), st.integers(1, 12))


class Memory(RuleBasedStateMachine):
    """Requests come, are prefilled in chunks, grow, share, slide, and go."""

    window: ClassVar[int | None] = None
    prefix_cache: ClassVar[bool] = True
    page_size: ClassVar[int] = 2

    def __init__(self) -> None:
        super().__init__()
        self.device = SimulatedDevice()
        layout = KVLayout((None, self.window), kv_heads=1, head_dim=1, dtype=torch.float32)
        self.requests = ReqToTokenPool(self.device, max_running=ROWS, context_len=CONTEXT)
        self.kv = PagedKV(
            self.device,
            layout,
            pages=PAGES,
            page_size=self.page_size,
            context_len=CONTEXT,
            prefix_cache=self.prefix_cache,
        )
        self.memory = RequestMemory(self.requests, self.kv)
        self.live: list[Request] = []
        self.ids = count()
        self.full: dict[int, tuple[int, ...]] = {}
        self.sliding: dict[int, tuple[int, ...]] = {}

    def some(self, data: st.DataObject, requests: list[Request]) -> list[Request]:
        return data.draw(st.lists(st.sampled_from(requests), unique_by=id)) if requests else []

    def counts(self) -> tuple[int, int, int, int]:
        swa = self.kv.swa
        return (
            self.requests.available,
            self.kv.allocator.available,
            self.kv.evictable,
            0 if swa is None else swa.allocator.available,
        )

    def forward(self, request: Request, new: int) -> None:
        """Compute the keys and values of the request's next ``new`` tokens."""
        updates = RowUpdates()
        first, last = request.kv_len, request.kv_len + new
        self.memory.point(request, last, updates)
        self.requests.write("assign_req_to_token", updates)
        request.kv_len = request.kv_most = last
        tokens = request.prompt + request.output
        for position, slot in enumerate(self.kv.slots(request.pages, first, last), first):
            self.full[slot] = tuple(tokens[: position + 1])
            if self.kv.swa is not None:
                self.sliding[self.window_slot(request, position)] = tuple(tokens[: position + 1])

    def window_slot(self, request: Request, position: int) -> int:
        assert self.kv.swa is not None
        page = self.kv.swa._swa_of[request.pages[position // self.page_size]]
        return page * self.page_size + position % self.page_size

    @rule(tokens=TOKENS, reserve=st.integers(0, 2))
    def admit(self, tokens: list[int], reserve: int) -> None:
        self.admitted(tokens, reserve)

    @rule(tokens=TOKENS)
    def admit_twins(self, tokens: list[int]) -> None:
        """Neither finds the other's pages, since none is computed yet; one will have to take the other's later."""
        for request in [self.admitted(tokens, 0), self.admitted(tokens, 0)]:
            if request is not None:
                self.forward(request, len(request.fill) - request.kv_len)

    def admitted(self, tokens: list[int], reserve: int) -> Request | None:
        request = Request(next(self.ids), tokens, SamplingParams())
        before, updates = self.counts(), RowUpdates()
        if not self.memory.admit(request, reserve, updates):
            assert self.counts() == before
            assert (request.row, request.pages, request.path.nodes, bool(updates)) == (0, [], [], False)
            return None
        assert request.kv_len < len(tokens)
        assert len(request.pages) == self.kv.pages_for(len(tokens))
        self.requests.write("assign_req_to_token", updates)
        self.live.append(request)
        return request

    @precondition(lambda self: any(not request.filled for request in self.live))
    @rule(data=st.data())
    def prefill(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from([request for request in self.live if not request.filled]))
        self.forward(request, data.draw(st.integers(1, len(request.fill) - request.kv_len)))

    @rule(data=st.data(), token=st.integers(0, 1))
    def decode(self, data: st.DataObject, token: int) -> None:
        requests = self.some(data, [request for request in self.live if request.filled and request.kv_len < CONTEXT])
        before, pages = self.counts(), [list(request.pages) for request in requests]
        if not self.memory.grow(requests, 1):
            assert self.counts() == before
            assert [request.pages for request in requests] == pages
            return
        for request in requests:
            request.output.append(token)
            self.forward(request, 1)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def share(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(self.live))
        updates = RowUpdates()
        computed = data.draw(st.just(request.kv_len) | st.integers(0, request.kv_len))
        self.memory.share(request, (request.prompt + request.output)[:computed], updates)
        self.requests.write("rewrite_req_to_token", updates)

    @rule(data=st.data())
    def slide(self, data: st.DataObject) -> None:
        requests = self.some(data, self.live)
        self.memory.slide(requests)
        swa = self.kv.swa
        if swa is not None:
            for request in requests:
                first = swa.first_needed_page(request.kv_len, self.page_size)
                assert not any(map(swa.is_mapped, request.pages[len(request.path.nodes) : first]))

    @precondition(lambda self: self.live)
    @rule(data=st.data(), keep=st.booleans())
    def release(self, data: st.DataObject, *, keep: bool) -> None:
        request = data.draw(st.sampled_from(self.live))
        self.live.remove(request)
        computed = data.draw(st.integers(0, request.kv_len)) if keep else 0
        self.memory.release(request, (request.prompt + request.output)[:computed])
        assert (request.row, request.pages, request.path.nodes, request.kv_len) == (0, [], [], 0)

    @invariant()
    def every_page_has_one_owner(self) -> None:
        owned = list(self.kv.allocator._free)
        for request in self.live:
            held = len(request.path.nodes)
            assert request.path.pages == request.pages[:held]
            owned += request.pages[held:]
        if self.kv.cache is not None:
            owned += [node.page for node in self.kv.cache._walk()]
        assert sorted(owned) == list(range(1, PAGES + 1))

    @invariant()
    def rows_on_the_device_point_at_the_requests_pages(self) -> None:
        self.device.synchronize()
        table = self.requests.req_to_token.tensor
        assert len({request.row for request in self.live}) == len(self.live)
        for request in self.live:
            assert table[request.row, : request.kv_len].tolist() == self.kv.slots(request.pages, 0, request.kv_len)
        assert table[0].tolist() == [0] * CONTEXT

    @invariant()
    def slots_hold_what_the_request_computed_or_another_of_the_same_beginning(self) -> None:
        for request in self.live:
            tokens = request.prompt + request.output
            for position, slot in enumerate(self.kv.slots(request.pages, 0, request.kv_len)):
                assert self.full[slot] == tuple(tokens[: position + 1])

    @invariant()
    def every_window_is_mapped_and_holds_the_requests_tokens(self) -> None:
        if self.kv.swa is None or self.window is None:
            return
        self.device.synchronize()
        mapping = self.kv.swa.full_to_swa.tensor.tolist()
        for request in self.live:
            tokens = request.prompt + request.output
            for position in range(max(0, request.kv_len - self.window + 1), request.kv_len):
                slot = self.window_slot(request, position)
                assert self.sliding[slot] == tuple(tokens[: position + 1])
                assert mapping[request.pages[position // self.page_size]] == slot // self.page_size
        mapped = self.kv.swa._swa_of
        assert self.kv.swa.allocator.available == self.kv.swa.allocator.pages - len(mapped)
        assert not set(mapped) & set(self.kv.allocator._free)

    def teardown(self) -> None:
        for request in self.live:
            self.memory.release(request)
        if self.kv.cache is not None:
            self.kv.cache.evict(PAGES)
        assert self.counts()[:3] == (ROWS, PAGES, 0)
        assert self.kv.swa is None or self.kv.swa.allocator.available == self.kv.swa.allocator.pages


class WithoutCache(Memory):
    """No prefix cache."""

    prefix_cache = False


class Sliding(Memory):
    """A short window."""

    window = 4


class Narrow(Memory):
    """A window of the current token alone, and pages of one token."""

    window, page_size = 1, 1


class SlidingWithoutCache(Memory):
    """A short window and no prefix cache."""

    window, prefix_cache = 4, False


def case(machine: type[RuleBasedStateMachine]) -> type[TestCase]:
    """Return the test of one machine."""
    machine.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
    return machine.TestCase


TestMemory = case(Memory)
TestWithoutCache = case(WithoutCache)
TestSliding = case(Sliding)
TestNarrow = case(Narrow)
TestSlidingWithoutCache = case(SlidingWithoutCache)
