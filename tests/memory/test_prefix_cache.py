"""``PrefixCache`` beside a naive model: a dictionary from whole prefixes to pages."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sglang_fence.memory.prefix_cache import Path, PrefixCache

Prefix = tuple[int, ...]
TOKENS = st.lists(st.integers(0, 1), min_size=1, max_size=9)


@dataclass(eq=False)
class Holder:
    """A request: its tokens, its pages, and how much of them it holds in the cache."""

    tokens: list[int]
    pages: list[int]
    path: Path
    held: int
    """Pages of it that the model thinks are held."""
    passed: int = 0


@dataclass
class Entry:
    """A cached page of the model."""

    page: int
    last_used: int
    seen: list[int] = field(default_factory=list)


class Cache(RuleBasedStateMachine):
    """Requests match, insert, slide and let go; pages are evicted."""

    @initialize(size=st.integers(1, 3))
    def start(self, size: int) -> None:
        self.size = size
        self.dropped: list[int] = []
        self.cache = PrefixCache(size, self.dropped.append)
        self.model: dict[Prefix, Entry] = {}
        self.holders: list[Holder] = []
        self.fresh = count(1)
        self.clock = count(1)

    def prefixes(self, tokens: list[int], limit: int) -> list[Prefix]:
        """Whole pages of the first ``limit`` tokens, as prefixes from the beginning."""
        return [tuple(tokens[:end]) for end in range(self.size, limit + 1, self.size)]

    def path_of(self, holder: Holder) -> list[Prefix]:
        return self.prefixes(holder.tokens, len(holder.tokens))[: holder.held]

    def held(self, prefix: Prefix) -> bool:
        return any(prefix in self.path_of(holder) for holder in self.holders)

    def use(self, prefix: Prefix) -> None:
        self.model[prefix].last_used = next(self.clock)

    @rule(tokens=TOKENS, most=st.integers(0, 9))
    def match(self, tokens: list[int], most: int) -> None:
        longest: list[Prefix] = []
        for prefix in self.prefixes(tokens, len(tokens) - 1):  # the last token is computed, always
            if prefix not in self.model:
                break
            longest.append(prefix)
        asked: list[list[int]] = []

        def usable(pages: list[int]) -> int:
            asked.append(pages)
            return min(most, len(pages))

        path = self.cache.match(tokens, usable)
        assert asked == [[self.model[prefix].page for prefix in longest]]
        found = longest[:most]
        assert path.pages == [self.model[prefix].page for prefix in found]
        for prefix in found:
            self.use(prefix)
        wanted = -(-len(tokens) // self.size)
        pages = path.pages + [next(self.fresh) for _ in range(wanted - len(found))]
        self.holders.append(Holder(tokens, pages, path, len(found)))

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def insert(self, data: st.DataObject) -> None:
        holder = data.draw(st.sampled_from(self.holders))
        computed = data.draw(st.integers(0, len(holder.tokens)))
        expected: list[tuple[int, int, int]] = []
        whole = self.prefixes(holder.tokens, computed)
        for index in range(holder.held, len(whole)):
            prefix = whole[index]
            entry = self.model.setdefault(prefix, Entry(holder.pages[index], 0))
            if entry.page != holder.pages[index]:
                expected.append((index, holder.pages[index], entry.page))
            self.use(prefix)
        holder.held = max(holder.held, len(whole))
        assert self.cache.insert(holder.tokens[:computed], holder.pages, holder.path) == expected
        for index, _, cached in expected:
            holder.pages[index] = cached
        assert holder.path.pages == holder.pages[: holder.held]

    @precondition(lambda self: self.holders)
    @rule(data=st.data(), first=st.integers(0, 10))
    def pass_window(self, data: st.DataObject, first: int) -> None:
        holder = data.draw(st.sampled_from(self.holders))
        self.cache.pass_window(holder.path, first)
        holder.passed = max(holder.passed, min(first, holder.held))

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        holder = data.draw(st.sampled_from(self.holders))
        self.holders.remove(holder)
        self.cache.release(holder.path)
        assert (holder.path.nodes, holder.path.passed) == ([], 0)

    @rule(wanted=st.integers(0, 6))
    def evict(self, wanted: int) -> None:
        expected: list[int] = []
        while len(expected) < wanted:
            leaves = [
                prefix
                for prefix in self.model
                if not self.held(prefix)
                and not any(len(other) > len(prefix) and other[: len(prefix)] == prefix for other in self.model)
            ]
            if not leaves:
                break
            oldest = min(leaves, key=lambda prefix: self.model[prefix].last_used)
            expected.append(self.model.pop(oldest).page)
        self.dropped.clear()
        assert self.cache.evict(wanted) == len(expected)
        assert self.dropped == expected

    @invariant()
    def what_nobody_holds_is_evictable_and_all_of_it_could_go(self) -> None:
        if hasattr(self, "model"):
            assert self.cache.evictable == sum(not self.held(prefix) for prefix in self.model)

    @invariant()
    def pages_that_no_window_reaches_are_idle_least_recently_used_first(self) -> None:
        if hasattr(self, "model"):
            reached = {prefix for holder in self.holders for prefix in self.path_of(holder)[holder.passed :]}
            idle = sorted(
                (entry.last_used, entry.page) for prefix, entry in self.model.items() if prefix not in reached
            )
            pages = [page for _, page in idle]
            assert self.cache.idle_window_pages(lambda _: True, None) == pages
            odd = [page for page in pages if page % 2]
            assert self.cache.idle_window_pages(lambda page: page % 2 == 1, 1) == odd[:1]

    def teardown(self) -> None:
        if hasattr(self, "model"):
            for holder in self.holders:
                self.cache.release(holder.path)
            assert self.cache.evictable == len(self.model)
            self.dropped.clear()
            assert self.cache.evict(len(self.model) + 1) == len(self.model)
            assert sorted(self.dropped) == sorted(entry.page for entry in self.model.values())
            assert self.cache.evictable == 0


TestCache = Cache.TestCase
TestCache.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)


def test_a_page_that_somebody_holds_is_never_evicted() -> None:
    dropped: list[int] = []
    cache = PrefixCache(1, dropped.append)
    path = Path()
    cache.insert([1, 2, 3], [11, 12, 13], path)
    assert cache.evict(3) == 0
    other = cache.match([1, 2, 9], len)
    cache.release(path)
    assert (cache.evict(3), dropped) == (1, [13])
    cache.release(other)
    assert (cache.evict(3), dropped) == (2, [13, 12, 11])


def test_an_insertion_that_finds_others_pages_says_which_take_the_place_of_its_own() -> None:
    cache = PrefixCache(2, lambda _: None)
    cache.insert([1, 2, 3, 4], [11, 12], Path())
    assert cache.insert([1, 2, 3, 4, 5, 6], [21, 22, 23], Path()) == [(0, 21, 11), (1, 22, 12)]
