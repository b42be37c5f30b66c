"""The track of slack: each value once, in order, at the time of its step's barrier."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sglang_fence.catalogue.ranges import NVTX_SLACK
from sglang_fence.testing import NvtxKind
from sglang_fence_exporters.nvtx_slack import BATCH, STEPS, SlackTrack

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from typing import Any

    from sglang_fence.testing import NvtxEvent
    from sglang_fence_exporters.nvtx_domain import Attributes

    Heard = Callable[..., tuple[dict[str, Any], list[NvtxEvent]]]


def test_slack_is_a_track_of_its_own_at_the_time_of_the_barriers(heard: Heard, injection: Path) -> None:
    said, events = heard("slack", injection)
    samples = [event for event in events if event.kind is NvtxKind.SAMPLE]
    timed = range(1, len(said["moments"]) - 1)
    assert [sample.payload for sample in samples] == [step / 4 for step in timed]
    assert {(sample.message, sample.unit, sample.payload_type) for sample in samples} == {
        (NVTX_SLACK.name, NVTX_SLACK.unit, "double")
    }
    for step, sample in zip(timed, samples, strict=True):
        before, after = said["moments"][step]
        assert sample.timestamp is not None
        assert before <= sample.timestamp <= after
    assert said["errors"] == {}


def test_a_tool_that_knows_no_counters_costs_no_error(heard: Heard, core_only: Path) -> None:
    said, events = heard("slack", core_only)
    assert said["errors"] == {}
    assert {event.kind for event in events} == {NvtxKind.PUSH, NvtxKind.POP, NvtxKind.MARK}


class Tool:
    """The library's side: a clock that counts, and a counter that keeps what it gets."""

    def __init__(self, *, has_clock: bool = True) -> None:
        self.time = 0
        self.has_clock = has_clock
        self.got: list[tuple[float, int]] = []
        self.batches: list[int] = []

    def get_category_id(self, name: str) -> int:
        return len(name)

    def get_event_attributes(self, message: str, color: int, category: int | None = None) -> None:
        del message, color, category

    def push_range(self, attributes: Attributes) -> None: ...

    def pop_range(self) -> None: ...

    def mark(self, attributes: Attributes) -> None: ...

    def get_timestamp(self) -> int:
        self.time += 1
        return self.time if self.has_clock else 0

    def sample(self, value: float) -> None:
        self.got.append((value, 0))

    def batch_submit(self, values: Sequence[float], timestamps: Sequence[int]) -> None:
        self.batches.append(len(values))
        self.got += zip(values, timestamps, strict=True)


@given(steps=st.integers(0, 4 * BATCH), in_flight=st.lists(st.integers(0, 8), min_size=1, max_size=8))
@example(steps=BATCH - 1, in_flight=[0])
@example(steps=BATCH, in_flight=[0])
@example(steps=BATCH + 1, in_flight=[0])
def test_each_value_comes_once_in_order_with_the_time_of_its_barrier(steps: int, in_flight: list[int]) -> None:
    """Whatever the number of steps, and of those in flight at each."""
    tool = Tool()
    track = SlackTrack(tool, tool)
    finished = 0
    for step, wanted in zip(range(steps), cycle(in_flight), strict=False):
        track.barrier(step)
        while finished <= step - wanted:
            track.add(finished, float(finished))
            finished += 1
    track.flush()
    assert tool.got == [(float(step), step + 1) for step in range(finished)]
    full, rest = divmod(finished, BATCH)
    assert tool.batches == [BATCH] * full + [rest] * bool(rest)


@pytest.mark.parametrize(("steps", "late"), [(STEPS, 0), (STEPS + 1, 1)])
def test_a_barrier_that_was_forgotten_gives_its_value_late_not_at_another_steps_time(steps: int, late: int) -> None:
    tool = Tool()
    track = SlackTrack(tool, tool)
    for step in range(steps):
        track.barrier(step)
    track.add(0, 7.0)
    track.flush()
    assert tool.got == [(7.0, 0 if late else 1)]


def test_a_step_whose_barrier_was_never_seen_gives_its_value_late() -> None:
    tool = Tool()
    SlackTrack(tool, tool).add(3, 1.5)
    assert tool.got == [(1.5, 0)]


def test_a_tool_without_a_clock_gets_each_value_at_once() -> None:
    tool = Tool(has_clock=False)
    track = SlackTrack(tool, tool)
    track.barrier(0)
    track.add(0, 2.0)
    assert tool.got == [(2.0, 0)]
    assert tool.batches == []
