"""The NVTX exporter: a tool hears every range, in order, balanced, with category, colour and payload."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from sglang_fence.catalogue import NVTX_RANGES, nvtx_range
from sglang_fence.catalogue.ranges import UNLISTED_COLOR, UNLISTED_NAME
from sglang_fence.testing import NvtxEvent, NvtxKind, nvtx_ranges

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

    Heard = Callable[..., tuple[dict[str, Any], list[NvtxEvent]]]

STEPS = 100


def check_listed(event: NvtxEvent) -> None:
    """Check an event against its row of the catalogue."""
    row = nvtx_range(str(event.message))
    assert event.category_name == row.category.value
    assert event.color == row.color
    assert event.payload_type == "int64"


def as_recorded(events: list[NvtxEvent]) -> list[list[object]]:
    return [[str(found.push.message), found.push.payload, found.depth] for found in nvtx_ranges(events)]


def test_every_range_of_a_hundred_steps_is_heard_in_order_and_balanced(heard: Heard, injection: Path) -> None:
    said, events = heard("steps", injection)
    assert as_recorded(events) == said["ranges"]
    for event in events:
        if event.kind in {NvtxKind.PUSH, NvtxKind.MARK}:
            check_listed(event)
    assert Counter(event.message for event in events if event.kind is NvtxKind.PUSH) == {
        "capture": 1,
        "in_graph_metadata": 1,
        "schedule": STEPS,
        "launch": STEPS,
        "out_graph_metadata": STEPS,
        "replay": STEPS,
        "segment": 2 * STEPS,
        "eager_segment": STEPS,
        "publish": STEPS,
        "barrier": STEPS,
        "process_results": STEPS,
        "collect": STEPS,
    }
    assert [event.payload for event in events if event.message == "launch"] == list(range(STEPS))
    assert [event.payload for event in events if event.message in {"capture", "in_graph_metadata"}] == [-1, -1]
    assert len({event.thread for event in events}) == 1
    assert said["errors"] == {}


def test_each_category_has_a_number_of_its_own(heard: Heard, injection: Path) -> None:
    _, events = heard("steps", injection)
    numbers = {(event.category, event.category_name) for event in events if event.category}
    assert len(numbers) == len({number for number, _ in numbers}) == len({name for _, name in numbers})
    assert {name for _, name in numbers} == {row.category.value for row in NVTX_RANGES} - {"speculative"}


def test_how_a_barrier_came_out_is_marked_inside_its_range(heard: Heard, injection: Path) -> None:
    _, events = heard("steps", injection)
    marks = {place: event for place, event in enumerate(events) if event.kind is NvtxKind.MARK}
    kinds = ("barrier.fine", "barrier.coarse", "barrier.disabled")
    expected = [(kinds[step % 4], step) for step in range(STEPS) if step % 4 < len(kinds)]
    assert [(mark.message, mark.payload) for mark in marks.values()] == expected
    barriers = {found.push.payload: found for found in nvtx_ranges(events) if found.push.message == "barrier"}
    for place, mark in marks.items():
        assert barriers[mark.payload].first < place < barriers[mark.payload].last


def test_ranges_are_balanced_when_the_backend_raises_in_the_middle(heard: Heard, injection: Path) -> None:
    said, events = heard("raising", injection)
    assert said["raised"] == STEPS // 2
    assert as_recorded(events) == said["ranges"]
    broken = [event.message for event in events if event.payload == STEPS // 2]
    assert broken == ["schedule", "launch", "out_graph_metadata", "replay", "segment", "eager_segment"]
    assert sum(event.message == "publish" for event in events) == STEPS - 1


def test_what_was_not_pushed_is_not_popped(heard: Heard, injection: Path) -> None:
    said, events = heard("failing", injection)
    assert said["errors"] == {"range_started": 1}
    assert [(event.kind, event.message) for event in events] == [
        (NvtxKind.PUSH, "launch"),
        (NvtxKind.PUSH, "segment"),
        (NvtxKind.POP, None),
        (NvtxKind.PUSH, "publish"),
        (NvtxKind.POP, None),
        (NvtxKind.POP, None),
    ]


def test_what_is_open_when_the_run_ends_is_closed(heard: Heard, injection: Path) -> None:
    _, events = heard("left_open", injection)
    assert [(found.push.message, found.depth) for found in nvtx_ranges(events)] == [("launch", 0), ("replay", 1)]


def test_a_range_of_another_name_is_grey_and_the_names_kept_are_bounded(heard: Heard, injection: Path) -> None:
    said, events = heard("unlisted", injection)
    pushes = [found.push for found in nvtx_ranges(events)]
    own = [f"mine_{number}" for number in range(64)]
    assert [push.message for push in pushes] == own + [UNLISTED_NAME] * (STEPS - len(own))
    assert {(push.category, push.category_name, push.color) for push in pushes} == {(0, None, UNLISTED_COLOR)}
    assert [push.payload for push in pushes] == list(range(STEPS))
    assert said["errors"] == {}


def test_the_catalogues_grey_is_no_colour_of_a_category() -> None:
    assert UNLISTED_COLOR not in {row.color for row in NVTX_RANGES}
    assert UNLISTED_NAME not in {row.name for row in NVTX_RANGES}


@pytest.mark.parametrize("why", ["no tool is attached", "NVTX is disabled", "the tool excludes the domain"])
def test_where_nobody_listens_nothing_is_overridden(heard: Heard, injection: Path, why: str) -> None:
    library = None if why == "no tool is attached" else injection
    variables = {
        "NVTX is disabled": {"NVTX_DISABLE": "1"},
        "the tool excludes the domain": {"SGLANG_FENCE_NVTX_EXCLUDE": "sglang_fence"},
    }.get(why, {})
    said, events = heard("steps", library, **variables)
    assert said["plain"]
    assert said["overridden"] == []
    assert events == []


def test_with_a_tool_only_the_hooks_that_are_needed_are_overridden(heard: Heard, injection: Path) -> None:
    said, _ = heard("left_open", injection)
    assert said["overridden"] == ["range_started", "range_ended", "barrier_applied", "step_finished", "run_ended"]


def test_a_tool_without_extensions_hears_the_same_ranges(heard: Heard, core_only: Path) -> None:
    said, events = heard("steps", core_only)
    assert said["ranges"]
    assert as_recorded(events) == said["ranges"]
