"""What is drawn of known steps: tracks, slices, details, arrows and counters, read back from the file's bytes."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

import pytest

from sglang_fence.catalogue import NVTX_RANGES, SPANS, Category, Track, span
from sglang_fence.contract import ForwardMode, SharedReadEnds
from sglang_fence.observe.record import Phase
from sglang_fence_exporters.perfetto_packets import TRACK_NAMES, Packets
from sglang_fence_exporters.perfetto_slices import CATEGORIES, READ_DONE
from sglang_fence_exporters.perfetto_timeline import PENDING, Timeline
from tests.exporters.perfetto.decoding import Decoded, decode
from tests.exporters.perfetto.traces import at, bare, forced_coarse, steady
from tests.exporters.perfetto.traces import span as times

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sglang_fence.observe.trace import StepTrace


def drawn(traces: Iterable[StepTrace]) -> Decoded:
    stream = BytesIO()
    timeline = Timeline(Packets(stream))
    for trace in traces:
        for _ in timeline.add(trace):
            pass
    timeline.finish()
    return decode(stream.getvalue())


def test_tracks_are_named_and_in_order_and_under_one() -> None:
    decoded = drawn([])
    (root,) = [uuid for uuid, name in decoded.names.items() if name == "sglang-fence"]
    below = sorted((uuid for uuid in decoded.names if decoded.parents[uuid] == root), key=decoded.ranks.__getitem__)
    assert [decoded.names[uuid] for uuid in below] == ["step", "host", "forward stream", "schedule stream", "observer"]
    counters = sorted(
        (uuid for uuid in decoded.names if decoded.parents[uuid] == below[-1]), key=decoded.ranks.__getitem__
    )
    assert [(decoded.names[uuid], decoded.units[uuid]) for uuid in counters] == [
        ("slack", "µs"),
        ("wait", "µs"),
        ("lost", "µs"),
    ]
    assert not decoded.slices
    assert not decoded.clocks


def test_every_track_and_span_of_the_catalogue_can_be_drawn() -> None:
    assert set(TRACK_NAMES) == set(Track)
    assert {one.name for one in SPANS} <= set(CATEGORIES)
    assert all(CATEGORIES[one.name] is one.category for one in NVTX_RANGES)


def test_the_clock_is_the_wall_clock() -> None:
    boottime, realtime = 6, 1
    assert drawn([steady(0)]).clocks == {boottime: at(0), realtime: at(0)}


def test_each_span_is_a_slice_at_its_times_in_the_one_that_holds_it() -> None:
    decoded = drawn([steady(0)])
    assert [one.where for one in decoded.on("forward stream")] == [
        ("forward stream", "out_graph_metadata", at(30), at(40)),
        ("forward stream", "replay", at(40), at(128)),
        ("forward stream", "in_graph_metadata", at(40), at(55)),
        ("forward stream", READ_DONE, at(55), at(55)),
        ("forward stream", "segment", at(55), at(128)),
    ]
    inside = {one.name: one.parent and one.parent.name for one in decoded.slices if not one.mark}
    assert inside == {
        **dict.fromkeys(("step", "schedule", "launch", "barrier", "process_results", "barrier_wait")),
        **dict.fromkeys(("out_graph_metadata", "replay")),
        "publish": "launch",
        "in_graph_metadata": "replay",
        "segment": "replay",
    }
    assert [one.name for one in decoded.on("step")] == ["step"]
    assert {one.name for one in decoded.on("host")} == {"schedule", "launch", "publish", "barrier", "process_results"}


def test_a_slice_says_what_the_catalogue_lets_it_say() -> None:
    decoded = drawn([forced_coarse(7)])
    for one in decoded.slices:
        if not one.mark:
            allowed = {attribute.name: attribute for attribute in span(one.name).attributes}
            assert set(one.details) <= set(allowed)
            assert all(type(value) is allowed[name].type for name, value in one.details.items())
    details = {one.name: one.details for one in decoded.slices if not one.mark}
    assert details["step"] == {
        "sglang_fence.step_id": 7,
        "sglang_fence.mode": "decode",
        "sglang_fence.backend": "NativeBackend",
        "sglang_fence.batch_size": 4,
        "sglang_fence.tokens": 4,
        "sglang_fence.ends.declared": "in_replay",
        "sglang_fence.ends.resolved": "in_replay",
        "sglang_fence.fence": "coarse",
        "sglang_fence.reason": "forced",
        "sglang_fence.slack": 0.0,
        "sglang_fence.wait": 80e-6,
        "sglang_fence.lost_slack": 73e-6,
        "sglang_fence.lost": 30e-6,
        "sglang_fence.forward_gap": 2e-6,
        "sglang_fence.forward_gap_last": "host",
        "sglang_fence.assumed": False,
    }
    assert details["publish"]["sglang_fence.in_graph"] is True
    assert details["segment"] == {"sglang_fence.step_id": 7, "sglang_fence.segment_index": 1}
    assert {one.name: one.category for one in decoded.slices}["barrier_wait"] == Category.BARRIER


def test_a_span_of_a_phase_says_what_that_phase_was() -> None:
    verify = Phase(
        ForwardMode.TARGET_VERIFY, "draft", "Other", SharedReadEnds.POST_REPLAY, SharedReadEnds.UNKNOWN, None
    )
    trace = steady(0)
    (publish,) = [one for one in trace.spans if one.name == "publish"]
    trace = trace._replace(phases=(*trace.phases, verify), spans=(publish._replace(phase=1),))
    (details,) = [one.details for one in drawn([trace]).on("host")]
    assert details["sglang_fence.runner"] == "draft"
    assert details["sglang_fence.ends.declared"] == "post_replay"
    assert details["sglang_fence.ends.resolved"] == "unknown"
    assert details["sglang_fence.in_graph"] is False


def test_the_arrow_leads_from_read_done_into_the_wait_that_it_ends() -> None:
    (arrow,) = drawn([steady(0)]).arrows.values()
    assert arrow.target
    assert arrow.source.where == ("forward stream", READ_DONE, at(55), at(55))
    assert arrow.source.parent
    assert arrow.source.parent.name == "in_graph_metadata"
    assert arrow.target.where == ("schedule stream", READ_DONE, at(55), at(55))
    assert arrow.target.parent
    assert arrow.target.parent.where == ("schedule stream", "barrier_wait", at(48), at(56))
    assert arrow.source.details == {
        "sglang_fence.step_id": 0,
        "sglang_fence.fence": "fine",
        "sglang_fence.bound_record": 100,
    }


def test_a_coarse_wait_ends_with_the_forward_and_its_arrow_is_inside_both() -> None:
    (arrow,) = drawn([forced_coarse(0)]).arrows.values()
    assert arrow.target
    assert (arrow.from_ns, arrow.to_ns) == (at(128), at(128))
    assert arrow.source.parent
    assert arrow.source.parent.name == "segment"
    assert arrow.target.parent
    assert arrow.target.parent.name == "barrier_wait"


@pytest.mark.parametrize("released_us", [44, 48])
def test_a_wait_that_costs_nothing_has_the_arrow_at_its_start(released_us: int) -> None:
    (arrow,) = drawn([steady(0)._replace(released_ns=at(released_us))]).arrows.values()
    assert arrow.target
    assert (arrow.from_ns, arrow.to_ns) == (at(released_us), at(48))
    assert arrow.target.name == "barrier_wait"


def test_a_record_that_seems_later_than_the_end_of_its_wait_is_drawn_at_that_end() -> None:
    (arrow,) = drawn([steady(0)._replace(released_ns=at(60))]).arrows.values()
    assert (arrow.from_ns, arrow.to_ns) == (at(56), at(56))


def test_no_arrow_without_a_record_or_without_a_wait() -> None:
    assert not drawn([steady(0)._replace(released_ns=None)]).arrows
    alone = drawn([steady(0)._replace(spans=steady(0).spans[:-1])])
    assert not alone.arrows
    assert [one.where for one in alone.on("forward stream") if one.mark] == [
        ("forward stream", READ_DONE, at(55), at(55)),
    ]


def between_steps(decoded: Decoded) -> list[tuple[object, object]]:
    """Return the arrows from barriers to preparations, as pairs of steps."""
    found: list[tuple[object, object]] = []
    for arrow in decoded.arrows.values():
        if arrow.source.name == "barrier":
            assert arrow.target
            assert arrow.target.name == "schedule"
            assert arrow.source.end_ns <= arrow.target.start_ns
            found.append((arrow.source.details["sglang_fence.step_id"], arrow.target.details["sglang_fence.step_id"]))
    return found


def test_an_arrow_leads_from_the_barrier_to_the_preparation_behind_it() -> None:
    assert between_steps(drawn(map(steady, range(4)))) == [(0, 1), (1, 2), (2, 3)]


def test_no_arrow_from_a_step_that_was_not_traced_or_is_not_before() -> None:
    assert between_steps(drawn([steady(0), steady(2), steady(3)])) == [(2, 3)]
    assert not between_steps(drawn([steady(0)._replace(waited_for=1), steady(1)._replace(waited_for=None)]))
    moved = steady(1)._replace(waited_for=0, start_ns=at(40), spans=(times("schedule", Track.HOST, 49, 60),))
    assert not between_steps(drawn([steady(0), moved]))


def test_counters_hold_the_steps_durations_from_its_start() -> None:
    traces = [steady(0), forced_coarse(1), steady(2), steady(3)._replace(slack_us=None, wait_us=None)]
    assert drawn(traces).counters == {
        "slack": [(at(0), 73.0), (at(100), 0.0), (at(200), 73.0), (at(300), 0.0)],
        "wait": [(at(0), 8.0), (at(100), 80.0), (at(200), 8.0), (at(300), 0.0)],
        "lost": [(at(100), 30.0), (at(200), 0.0)],
    }


def test_steps_that_overlap_have_two_lanes_of_one_name_in_turn() -> None:
    decoded = drawn(map(steady, range(6)))
    steps = decoded.on("step")
    assert [one.start_ns for one in steps] == [at(100 * step) for step in range(6)]
    assert all(one.end_ns - one.start_ns == 128_000 for one in steps)
    first, second = steps[0].uuid, steps[1].uuid
    assert first != second
    assert [one.uuid for one in steps] == [first, second] * 3
    assert decoded.parents[first] == decoded.parents[second]
    assert decoded.ranks[first] == decoded.ranks[second]
    others = [one for one in decoded.slices if one.track != "step"]
    assert len({one.uuid for one in others}) == 3


def test_a_step_within_another_is_not_drawn_as_a_part_of_it() -> None:
    decoded = drawn([bare(0, 0, 100), bare(1, 10, 20)])
    assert [one.parent for one in decoded.on("step")] == [None, None]


def test_spans_that_overlap_without_nesting_go_to_a_lane_of_their_own() -> None:
    spans = [times("replay", Track.FORWARD, 0, 50), times("prefill", Track.FORWARD, 30, 90)]
    both = drawn([bare(0, 0, 90, spans)]).on("forward stream")
    assert [(one.name, one.start_ns, one.end_ns, one.parent) for one in both] == [
        ("replay", at(0), at(50), None),
        ("prefill", at(30), at(90), None),
    ]
    assert both[0].uuid != both[1].uuid


def test_a_span_that_comes_when_later_ones_are_written_is_not_lost() -> None:
    late = bare(2, 250, 260, [times("replay", Track.FORWARD, 20, 30)])
    early = bare(0, 0, 10, [times("replay", Track.FORWARD, 50, 60)])
    decoded = drawn([early, bare(1, 200, 210), late])
    assert sorted(one.start_ns for one in decoded.on("forward stream")) == [at(20), at(50)]


def test_slices_that_touch_follow_one_another_in_whatever_order_they_come() -> None:
    spans = [times("barrier", Track.HOST, 20, 30), times("launch", Track.HOST, 10, 20)]
    later = bare(1, 0, 50, [times("process_results", Track.HOST, 30, 40), times("schedule", Track.HOST, 0, 10)])
    host = drawn([bare(0, 0, 40, spans), later]).on("host")
    assert [one.name for one in host] == ["schedule", "launch", "barrier", "process_results"]
    assert [one.parent for one in host] == [None] * 4
    assert len({one.uuid for one in host}) == 1


def test_a_span_that_ends_before_it_starts_has_no_length() -> None:
    (one,) = drawn([bare(0, 0, 10, [times("replay", Track.FORWARD, 5, 4)])]).on("forward stream")
    assert (one.start_ns, one.end_ns) == (at(5), at(5))


def test_what_waits_to_be_put_in_order_is_bounded() -> None:
    timeline = Timeline(Packets(BytesIO()))
    for step in range(PENDING):
        for _ in timeline.add(bare(step, 0, 10, [times("replay", Track.FORWARD, 0, 1)])):
            pass
        assert len(timeline._pending) <= PENDING


def test_barriers_are_forgotten_once_they_are_written() -> None:
    timeline = Timeline(Packets(BytesIO()))
    for step in range(50):
        for _ in timeline.add(steady(step)):
            pass
    assert len(timeline._barriers) <= 2


def test_a_name_that_the_catalogue_lacks_is_refused_before_anything_is_taken() -> None:
    timeline = Timeline(Packets(BytesIO()))
    with pytest.raises(LookupError, match="no span 'nonsense' in the catalogue"):
        next(timeline.add(bare(0, 0, 10, [times("nonsense", Track.HOST, 0, 1)])))
    assert not timeline._pending
