"""``PagedKV``: what it hands out is nobody's, and exhaustion is an answer, not a change."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.memory.kv_pool import KVLayout, PagedKV
from sglang_fence.memory.prefix_cache import Path


def make(pages: int = 10, *, window: int | None = None, prefix_cache: bool = True, context_len: int = 8) -> PagedKV:
    layout = KVLayout((None, window), kv_heads=2, head_dim=4, dtype=torch.float32)
    return PagedKV(
        SimulatedDevice(), layout, pages=pages, page_size=2, context_len=context_len, prefix_cache=prefix_cache
    )


def state(kv: PagedKV) -> tuple[int, int, int]:
    return kv.allocator.available, kv.evictable, 0 if kv.swa is None else kv.swa.allocator.available


def take(kv: PagedKV, count: int) -> list[int]:
    pages = kv.allocate(count)
    assert pages is not None
    return pages


@pytest.mark.parametrize("window", [None, 3])
def test_storage_has_a_padding_page_and_sliding_layers_have_fewer(window: int | None) -> None:
    kv = make(window=window)
    full, other = kv.layer(0)[0], kv.layer(1)[1]
    assert full.shape == (22, 2, 4)
    assert other.shape == (22 if kv.swa is None else 2 * (kv.swa.allocator.pages + 1), 2, 4)
    assert kv.buffer.rows == 11


@given(pages=st.integers(1, 30), context=st.integers(1, 40))
def test_the_window_pool_holds_one_longest_request_where_the_full_pool_does(pages: int, context: int) -> None:
    kv = make(pages, window=3, context_len=context)
    assert kv.swa is not None
    assert kv.swa.allocator.pages >= min(pages, kv.pages_for(context))
    assert kv.swa.allocator.pages <= pages


@given(tokens=st.integers(0, 20))
def test_pages_hold_all_tokens_and_no_page_more(tokens: int) -> None:
    count = make().pages_for(tokens)
    assert count * 2 >= tokens > (count - 1) * 2


def test_slots_follow_the_pages_in_order() -> None:
    assert make().slots([5, 1, 7], 1, 6) == [11, 2, 3, 14, 15]


@pytest.mark.parametrize("window", [None, 3])
@given(data=st.data())
@settings(deadline=None, max_examples=60)
def test_held_pages_are_never_handed_out_and_a_refusal_changes_nothing(window: int | None, data: st.DataObject) -> None:
    kv = make(window=window)
    held: list[list[int]] = []
    paths: list[Path] = []
    for _ in range(data.draw(st.integers(1, 12))):
        action = data.draw(st.sampled_from(["allocate", "free", "cache", "let go"]))
        if action == "allocate":
            count, before = data.draw(st.integers(0, 11)), state(kv)
            could = kv.can_allocate(count)
            pages = kv.allocate(count)
            assert could == (pages is not None)
            if pages is None:
                assert state(kv) == before
            else:
                mine = [page for path in paths for page in path.pages]
                assert len(set(pages)) == count
                assert not set(pages) & {*mine, *(page for other in held for page in other)}
                assert kv.swa is None or all(map(kv.swa.is_mapped, pages))
                held.append(pages)
        elif action == "let go" and paths and kv.cache is not None:
            kv.cache.release(paths.pop(data.draw(st.integers(0, len(paths) - 1))))
        elif held and kv.cache is not None:
            pages = held.pop(data.draw(st.integers(0, len(held) - 1)))
            if action == "free":
                kv.free(pages)
            else:
                tokens, path = data.draw(st.lists(st.integers(0, 1), min_size=2 * len(pages), max_size=20)), Path()
                replaced = kv.cache.insert(tokens[: 2 * len(pages)], pages, path)
                kv.free(own for _, own, _ in replaced)
                paths.append(path)


def test_cached_pages_go_before_an_allocation_fails() -> None:
    kv = make(4)
    pages, path = take(kv, 3), Path()
    assert kv.cache is not None
    kv.cache.insert([1, 2, 3, 4, 5, 6], pages, path)
    assert not kv.can_allocate(2)
    kv.cache.release(path)
    assert kv.evictable == 3
    assert len(take(kv, 3)) == 3
    assert (kv.evictable, kv.allocator.available) == (1, 0)


def test_exhausted_window_pages_are_an_answer_though_full_pages_are_left() -> None:
    kv = make(10, window=3, prefix_cache=False)
    assert kv.swa is not None
    room = kv.swa.allocator.pages
    assert room == 8
    pages = take(kv, room)
    assert kv.allocator.available == 2
    assert kv.allocate(1) is None
    kv.swa.evict(pages[:1])
    assert len(take(kv, 1)) == 1
    assert kv.allocate(1) is None


def test_window_pages_of_cached_prefixes_that_no_window_reaches_are_taken_though_the_pages_are_held() -> None:
    kv = make(10, window=3)
    assert kv.cache is not None
    assert kv.swa is not None
    pages, path = take(kv, kv.swa.allocator.pages), Path()
    kv.cache.insert(list(range(16)), pages, path)
    assert kv.allocate(1) is None
    kv.cache.pass_window(path, 1)
    assert len(take(kv, 1)) == 1
    assert [kv.swa.is_mapped(page) for page in pages] == [False, *[True] * 7]
    assert path.pages == pages


def test_freed_pages_lose_their_window_pages() -> None:
    kv = make(window=3)
    assert kv.swa is not None
    pages = take(kv, 3)
    kv.free(pages)
    assert state(kv) == (10, 0, kv.swa.allocator.pages)
    assert not any(map(kv.swa.is_mapped, pages))
