"""``SlidingWindowPool``: the mapping on the device is the host's, and windows never lose what they see."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.memory.sliding_window import SlidingWindowPool

FULL, SWA = 10, 6
PAGES = st.lists(st.integers(1, FULL), unique=True, max_size=FULL)


class Mapping(RuleBasedStateMachine):
    """Map, unmap, forget and move in any order, beside a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.device = SimulatedDevice()
        self.pool = SlidingWindowPool(self.device, full_pages=FULL, swa_pages=SWA, window=4)
        self.mapped: dict[int, int] = {}
        self.evicted: set[int] = set()

    @rule(pages=PAGES)
    def map(self, pages: list[int]) -> None:
        pages = [page for page in pages if page not in self.mapped]
        if len(pages) > self.pool.allocator.available:
            with pytest.raises(RuntimeError, match=f"map\\({len(pages)} pages\\) with .* SWA pages free"):
                self.pool.map(pages)
            return
        self.pool.map(pages)
        for page in pages:
            self.mapped[page] = self.pool._swa_of[page]
        self.evicted.difference_update(pages)

    @rule(pages=PAGES)
    def evict(self, pages: list[int]) -> None:
        self.evicted.update(page for page in pages if self.mapped.pop(page, None))
        self.pool.evict(pages)

    @rule(pages=PAGES)
    def forget(self, pages: list[int]) -> None:
        for page in pages:
            self.mapped.pop(page, None)
        self.pool.forget(pages)

    @rule(pages=PAGES)
    def move(self, pages: list[int]) -> None:
        pairs = list(zip(pages[::2], pages[1::2], strict=False))
        for own, cached in pairs:
            if own in self.mapped and cached not in self.mapped:
                self.mapped[cached] = self.mapped.pop(own)
                self.evicted.discard(cached)
        self.pool.move(pairs)

    @invariant()
    def the_device_and_the_host_agree(self) -> None:
        self.device.synchronize()
        table = self.pool.full_to_swa.tensor.tolist()
        assert {page: table[page] for page in self.mapped} == self.mapped
        assert [table[page] for page in self.evicted] == [0] * len(self.evicted)
        assert [page for page in range(FULL + 1) if self.pool.is_mapped(page)] == sorted(self.mapped)
        assert table[0] == 0

    @invariant()
    def no_window_page_is_shared_or_lost(self) -> None:
        taken = list(self.mapped.values())
        assert len(set(taken)) == len(taken)
        assert self.pool.allocator.available == SWA - len(taken)
        assert 0 not in taken


TestMapping = Mapping.TestCase
TestMapping.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


def visible(position: int, window: int) -> range:
    """Positions that a query at ``position`` sees."""
    return range(max(0, position - window + 1), position + 1)


@given(position=st.integers(0, 60), size=st.integers(1, 7), window=st.integers(1, 20))
def test_the_first_needed_page_holds_the_first_visible_position(position: int, size: int, window: int) -> None:
    pool = SlidingWindowPool(SimulatedDevice(), full_pages=1, swa_pages=1, window=window)
    assert pool.first_needed_page(position, size) == visible(position, window)[0] // size


@given(mapped=st.lists(st.booleans(), max_size=FULL), size=st.integers(1, 5), window=st.integers(1, 30))
def test_a_prefix_is_usable_as_far_as_all_that_its_next_token_sees_is_mapped(
    mapped: list[bool],
    size: int,
    window: int,
) -> None:
    pool = SlidingWindowPool(SimulatedDevice(), full_pages=FULL, swa_pages=FULL, window=window)
    pages = list(range(1, len(mapped) + 1))
    pool.map([page for page, is_mapped in zip(pages, mapped, strict=True) if is_mapped])
    usable = [
        count
        for count in range(len(pages) + 1)
        if all(mapped[position // size] for position in visible(count * size, window) if position < count * size)
    ]
    assert pool.usable_prefix(pages, size) == max(usable)
