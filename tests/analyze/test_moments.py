"""Moments within ranges: told as by looking at each range."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from sglang_fence.analyze.ranges import Moments, NamedRange

TIMES = st.integers(0, 12)
THREADS = st.integers(0, 1)
NESTED = [NamedRange("capture", 0, 0, 10, -1), NamedRange("capture", 0, 2, 3, -1)]
RANGES = st.lists(
    st.builds(
        lambda thread, start, length: NamedRange("capture", thread, start, start + length, -1), THREADS, TIMES, TIMES
    ),
    max_size=8,
)


@given(ranges=RANGES, thread=THREADS, moment=TIMES)
@example(ranges=NESTED, thread=0, moment=5)  # behind the end of the one that began last
def test_a_moment_is_held_where_any_range_of_its_thread_holds_it(
    ranges: list[NamedRange], thread: int, moment: int
) -> None:
    expected = any(one.thread == thread and one.start <= moment <= one.end for one in ranges)
    assert Moments(ranges).hold(thread, moment) == expected
