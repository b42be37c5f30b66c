"""``PageAllocator``: no page is had twice, and none is given back twice."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sglang_fence.errors import ContractError
from sglang_fence.memory.allocator import PageAllocator


class Pages(RuleBasedStateMachine):
    """Take and give back in any order, beside a set of what is out."""

    @initialize(pages=st.integers(1, 12))
    def start(self, pages: int) -> None:
        self.allocator = PageAllocator(pages)
        self.out: set[int] = set()

    @rule(count=st.integers(0, 13))
    def allocate(self, count: int) -> None:
        before = self.allocator.available
        taken = self.allocator.allocate(count)
        if taken is None:
            assert count > before
            assert self.allocator.available == before
        else:
            assert len(taken) == len(set(taken)) == count
            assert not self.out.intersection(taken)
            self.out.update(taken)

    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        pages = data.draw(st.lists(st.sampled_from(sorted(self.out)), unique=True) if self.out else st.just([]))
        self.allocator.free(pages)
        self.out.difference_update(pages)

    @rule(data=st.data())
    def free_what_is_not_out(self, data: st.DataObject) -> None:
        page = data.draw(st.integers(-2, self.allocator.pages + 2).filter(lambda page: page not in self.out))
        with pytest.raises(ContractError, match=f"page {page} is freed twice, or isn't one of 1 to"):
            self.allocator.free([page])

    @invariant()
    def what_is_not_out_is_available(self) -> None:
        if hasattr(self, "allocator"):
            assert self.allocator.available == self.allocator.pages - len(self.out)
            assert all(1 <= page <= self.allocator.pages for page in self.out)


TestPages = Pages.TestCase
TestPages.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


@given(pages=st.integers(1, 40))
def test_all_of_them_can_be_had_and_not_one_more(pages: int) -> None:
    allocator = PageAllocator(pages)
    assert allocator.allocate(pages + 1) is None
    taken = allocator.allocate(pages)
    assert taken is not None
    assert sorted(taken) == list(range(1, pages + 1))
    assert allocator.allocate(1) is None
    assert allocator.allocate(0) == []


def test_a_page_twice_in_one_call_is_refused() -> None:
    allocator = PageAllocator(2)
    taken = allocator.allocate(1)
    assert taken is not None
    with pytest.raises(ContractError, match="freed twice"):
        allocator.free(taken * 2)


def test_the_last_freed_is_had_first_so_that_a_reuse_comes_soon() -> None:
    allocator = PageAllocator(4)
    allocator.allocate(3)
    allocator.free([2])
    assert allocator.allocate(1) == [2]
