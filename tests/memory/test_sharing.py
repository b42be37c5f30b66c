"""Two requests that computed the same: the later one takes the earlier one's pages, and its row is rewritten."""

from __future__ import annotations

import pytest
import torch

from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.engine.memory import RequestMemory
from sglang_fence.engine.requests import Request, SamplingParams
from sglang_fence.memory.kv_pool import KVLayout, PagedKV
from sglang_fence.memory.request_pool import ReqToTokenPool, RowUpdates

TOKENS = [1, 2, 3, 4, 5]


class Rig:
    """Two requests with the same prompt, both prefilled before either was shared."""

    def __init__(self, window: int | None) -> None:
        self.device = SimulatedDevice()
        self.requests = ReqToTokenPool(self.device, max_running=2, context_len=8)
        layout = KVLayout((window,), kv_heads=1, head_dim=1, dtype=torch.float32)
        self.kv = PagedKV(self.device, layout, pages=8, page_size=2, context_len=8, prefix_cache=True)
        self.memory = RequestMemory(self.requests, self.kv)
        self.one, self.two = (Request(name, TOKENS, SamplingParams()) for name in ("one", "two"))
        for request in (self.one, self.two):
            updates = RowUpdates()
            assert self.memory.admit(request, 0, updates)
            self.memory.point(request, len(TOKENS), updates)
            request.kv_len = request.kv_most = len(TOKENS)
            self.requests.write("assign_req_to_token", updates)

    def share(self, request: Request) -> RowUpdates:
        updates = RowUpdates()
        self.memory.share(request, TOKENS, updates)
        self.requests.write("rewrite_req_to_token", updates)
        self.device.synchronize()
        return updates

    def row(self, request: Request) -> list[int]:
        return self.requests.req_to_token.tensor[request.row, : request.kv_len].tolist()


@pytest.mark.parametrize("window", [None, 6])
def test_the_later_one_points_at_the_cached_pages_and_its_own_are_free(window: int | None) -> None:
    rig = Rig(window)
    own, free = list(rig.two.pages), rig.kv.allocator.available
    assert not rig.share(rig.one)
    updates = rig.share(rig.two)
    assert rig.two.pages == [*rig.one.pages[:2], own[2]]
    assert (set(updates.rows), updates.columns) == ({rig.two.row}, [0, 1, 2, 3])
    assert rig.row(rig.two) == rig.kv.slots(rig.two.pages, 0, 5)
    assert rig.row(rig.two)[:4] == rig.row(rig.one)[:4]
    assert rig.kv.allocator.available == free + 2
    assert set(own[:2]) <= set(rig.kv.allocator._free)


def test_a_cached_page_that_lost_its_window_contents_takes_over_those_of_the_live_request() -> None:
    rig = Rig(window=6)
    swa = rig.kv.swa
    assert swa is not None
    rig.share(rig.one)
    first = rig.one.pages[0]
    swa.evict([first])
    contents = swa._swa_of[rig.two.pages[0]]
    rig.share(rig.two)
    assert rig.two.pages[0] == first
    assert swa._swa_of[first] == contents
    assert int(swa.full_to_swa.tensor[first]) == contents


def test_released_pages_stay_cached_for_the_next_prompt_of_the_same_beginning() -> None:
    rig = Rig(window=None)
    rig.memory.release(rig.one, TOKENS)
    rig.memory.release(rig.two)
    following, updates = Request("three", [*TOKENS, 6], SamplingParams()), RowUpdates()
    assert rig.memory.admit(following, 0, updates)
    assert (following.kv_len, rig.memory.cached_tokens) == (4, 4)
    assert updates.slots == rig.kv.slots(following.pages, 0, 4)
