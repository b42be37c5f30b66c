"""What a trace of a step holds: spans that nest on their tracks, with the phases, segments and steps they belong to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from sglang_fence.catalogue import Track
from sglang_fence.catalogue.spans import SPANS
from sglang_fence.contract import FenceKind, SharedReadEnds
from sglang_fence.observe.sampling import Sampling
from sglang_fence.observe.trace import VIRTUAL_EPOCH_NS
from sglang_fence.testing.records import FrozenStepRecord
from tests.observe.watched import watch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sglang_fence.observe.trace import SpanTimes, StepTrace
    from tests.observe.watched import Watched

LOOPS: dict[str, dict[str, Any]] = {
    "overlap": {},
    "coarse": {"fence": "coarse"},
    "off": {"fence": "off"},
    "plain": {"overlap": False},
    "eager": {"graph": "off"},
    "breakable": {"graph": "breakable"},
    "early": {"attention": "trtllm_mha"},
    "pdmux": {"pdmux": True},
    "eagle": {"speculative": "eagle"},
    "eagle_breakable": {"speculative": "eagle", "graph": "breakable"},
    "ngram": {"speculative": "ngram"},
    "dspark": {"speculative": "dspark"},
}
TRACK_OF = {span.name: span.track for span in SPANS}
CLOSE_US = 0.002


@pytest.fixture(scope="module", params=LOOPS)
def watched(request: pytest.FixtureRequest) -> Watched:
    """Return a run of which every step was traced."""
    made = watch(Sampling(1, trace_ratio=1.0), **LOOPS[request.param])
    made.serve()
    return made


def nested(spans: Sequence[SpanTimes]) -> bool:
    """Whether spans, in order of their start with the outer first, nest or follow one another."""
    open_: list[SpanTimes] = []
    for span in spans:
        while open_ and open_[-1].end_ns <= span.start_ns:
            open_.pop()
        if open_ and span.end_ns > open_[-1].end_ns:
            return False
        open_.append(span)
    return True


def on(trace: StepTrace, track: Track) -> list[SpanTimes]:
    return [span for span in trace.spans if span.track is track]


def test_each_step_is_traced_once_and_says_what_its_record_says(watched: Watched) -> None:
    assert sorted(trace.step for trace in watched.traces) == list(range(len(watched.finished)))
    for trace in watched.traces:
        record = watched.finished[trace.step]
        for field in (
            "mode",
            "backend",
            "batch_size",
            "tokens",
            "declared",
            "resolved",
            "downgrade",
            "fence",
            "reason",
        ):
            assert getattr(trace, field) == getattr(record, field)
        for field in ("slack_us", "wait_us", "forward_us", "gap_us", "gap_last", "lost_slack_us", "lost_us", "assumed"):
            assert getattr(trace, field) == getattr(record, field)
        assert trace.phases == tuple(record.phases)
        assert trace.error_ns == 0


def test_spans_are_of_the_catalogue_in_order_and_nest_on_their_tracks(watched: Watched) -> None:
    for trace in watched.traces:
        assert VIRTUAL_EPOCH_NS <= trace.start_ns <= trace.end_ns
        assert [span.track for span in trace.spans] == [TRACK_OF[span.name] for span in trace.spans]
        assert list(trace.spans) == sorted(trace.spans, key=lambda span: (span.start_ns, -span.end_ns))
        for span in trace.spans:
            assert trace.start_ns <= span.start_ns <= span.end_ns <= trace.end_ns
        for track in (Track.HOST, Track.FORWARD, Track.SCHEDULE):
            assert nested(on(trace, track))


def test_a_step_has_its_host_s_ranges_once(watched: Watched) -> None:
    for trace in watched.traces:
        names = [span.name for span in on(trace, Track.HOST)]
        assert names.count("schedule") == names.count("launch") == 1
        assert names.count("barrier") == (trace.fence is not FenceKind.ABSENT)
        published = [span.phase for span in trace.spans if span.name == "publish"]
        assert None not in published
        assert len(set(published)) == len(published)
        schedule, launch = (next(span for span in trace.spans if span.name == name) for name in ("schedule", "launch"))
        assert schedule.end_ns <= launch.start_ns
        assert trace.start_ns == schedule.start_ns


def test_spans_of_the_forward_lie_in_the_forward_and_know_their_phase(watched: Watched) -> None:
    for trace in watched.traces:
        forward = on(trace, Track.FORWARD)
        assert forward
        assert trace.forward_us is not None
        reach = max(span.end_ns for span in forward) - min(span.start_ns for span in forward)
        assert reach <= (trace.forward_us + CLOSE_US) * 1000
        for span in forward:
            if span.phase is not None:
                assert 0 <= span.phase < len(trace.phases)
            if span.name == "target_verify":
                assert span.phase is not None
                assert trace.phases[span.phase].role == "target"
            if span.name in {"draft", "draft_extend"} and span.phase is not None:
                assert trace.phases[span.phase].role == "draft"
            assert (span.segment is not None) == (span.name in {"segment", "eager_segment"})
        count: dict[str, int] = {}
        for span in forward:  # segments are counted anew in each graph
            if span.name == "replay":
                count.clear()
            elif span.segment is not None:
                assert span.segment == count.get(span.name, 0)
                count[span.name] = span.segment + 1


def test_the_wait_ends_where_the_fence_lets_go(watched: Watched) -> None:
    for trace in watched.traces:
        waits = on(trace, Track.SCHEDULE)
        if trace.fence in {FenceKind.DISABLED, FenceKind.ABSENT}:
            assert (waits, trace.released_ns, trace.bound_record) == ([], None, None)
            continue
        (wait,) = waits
        assert trace.wait_us is not None
        assert trace.slack_us is not None
        assert trace.released_ns is not None
        assert wait.end_ns - wait.start_ns == round(trace.wait_us * 1000)
        assert wait.end_ns == max(wait.start_ns, trace.released_ns)
        assert (trace.bound_record is not None) == (trace.fence is FenceKind.FINE)
        metadata = [span for span in trace.spans if span.name == "in_graph_metadata"]
        if trace.fence is FenceKind.FINE and trace.resolved is SharedReadEnds.IN_REPLAY:
            assert metadata[-1].end_ns == trace.released_ns


def test_a_step_waited_for_the_newest_fence_before_its_preparation(watched: Watched) -> None:
    newest: int | None = None
    prepared: dict[int, int | None] = {}
    for call in watched.heard.calls:
        if call.hook == "range_started" and call.arguments[0] == "schedule":
            prepared[int(str(call.arguments[1]))] = newest
        elif call.hook == "barrier_applied":
            (record,) = call.arguments
            assert isinstance(record, FrozenStepRecord)
            if record.fence in {FenceKind.FINE, FenceKind.COARSE}:
                newest = record.step
    assert {trace.step: trace.waited_for for trace in watched.traces} == {
        trace.step: prepared[trace.step] for trace in watched.traces
    }


def test_ranges_that_observers_hear_are_those_that_traces_hold(watched: Watched) -> None:
    watched.heard.assert_balanced()
    heard: dict[str, int] = {}
    for name, _, _ in watched.heard.ranges:
        heard[name] = heard.get(name, 0) + 1
    kept: dict[str, int] = {}
    for trace in watched.traces:
        for span in trace.spans:
            kept[span.name] = kept.get(span.name, 0) + 1
    for name in ("launch", "barrier", "publish", "replay", "segment", "out_graph_metadata", "prefill", "target_verify"):
        assert kept.get(name, 0) == heard.get(name, 0), name
