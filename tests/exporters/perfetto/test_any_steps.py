"""Whatever steps come, in whatever order: all of it is in the file, once, nested and with arrows that lead on."""

from __future__ import annotations

from collections import Counter
from io import BytesIO

from hypothesis import given
from hypothesis import strategies as st

from sglang_fence.catalogue import SPANS, Track
from sglang_fence.observe.trace import SpanTimes, StepTrace
from sglang_fence_exporters.perfetto_packets import TRACK_NAMES, Packets
from sglang_fence_exporters.perfetto_slices import READ_DONE
from sglang_fence_exporters.perfetto_timeline import Timeline
from tests.exporters.perfetto.decoding import decode
from tests.exporters.perfetto.traces import at, bare

SPANNED = [one for one in SPANS if one.track is not Track.STEP]
TIMES = st.integers(0, 30)
"""Few, so that many things touch, nest and overlap."""


@st.composite
def spans(draw: st.DrawFn) -> SpanTimes:
    one = draw(st.sampled_from(SPANNED))
    start, length = draw(TIMES), draw(TIMES)
    return SpanTimes(one.name, one.track, at(start), at(start + length), draw(st.sampled_from([None, 0])))


@st.composite
def steps(draw: st.DrawFn) -> StepTrace:
    start, length = draw(TIMES), draw(TIMES)
    maybe = st.none() | st.integers(0, 4)
    us = st.none() | st.floats(0, 1e6)
    released = draw(st.none() | TIMES)
    trace = bare(draw(st.integers(0, 4)), start, start + length, draw(st.lists(spans(), max_size=8)))
    return trace._replace(
        released_ns=None if released is None else at(released),
        waited_for=draw(maybe),
        bound_record=draw(maybe),
        slack_us=draw(us),
        wait_us=draw(us),
        lost_us=draw(us),
    )


def written(traces: list[StepTrace]) -> bytes:
    stream = BytesIO()
    timeline = Timeline(Packets(stream))
    for trace in traces:
        for _ in timeline.add(trace):
            pass
    timeline.finish()
    return stream.getvalue()


@given(st.lists(steps(), max_size=6))
def test_everything_is_drawn_once_and_every_arrow_leads_on(traces: list[StepTrace]) -> None:
    content = written(traces)
    decoded = decode(content)  # Checks nesting, and that each arrow begins and ends once.
    wanted = Counter((one.name, TRACK_NAMES[one.track], one.start_ns, one.end_ns) for t in traces for one in t.spans)
    wanted.update(("step", "step", trace.start_ns, trace.end_ns) for trace in traces)
    drawn = [one for one in decoded.slices if not one.mark]
    assert Counter((one.name, one.track, one.start_ns, one.end_ns) for one in drawn) == wanted
    marks = [one for one in decoded.slices if one.mark]
    assert {one.name for one in marks} <= {READ_DONE}
    reached = sum(trace.released_ns is not None for trace in traces)
    assert sum(one.track == "forward stream" for one in marks) == reached
    for arrow in decoded.arrows.values():
        assert arrow.target
        # What viewers go by: an arrow ends where its target starts.
        assert arrow.from_ns == arrow.source.start_ns <= arrow.to_ns == arrow.target.start_ns
    for one in drawn:
        assert one.parent is None or (one.parent.start_ns <= one.start_ns and one.end_ns <= one.parent.end_ns)
    assert written(traces) == content


@given(st.lists(steps(), min_size=1, max_size=6))
def test_every_wait_that_was_let_go_has_its_arrow(traces: list[StepTrace]) -> None:
    arrows = decode(written(traces)).arrows.values()
    let_go = [
        trace
        for trace in traces
        if trace.released_ns is not None and any(one.name == "barrier_wait" for one in trace.spans)
    ]
    assert sum(arrow.source.name == READ_DONE for arrow in arrows) == len(let_go)


@given(st.lists(steps(), max_size=6))
def test_a_counter_has_the_value_of_each_step_that_has_one(traces: list[StepTrace]) -> None:
    counters = decode(written(traces)).counters
    for name, values in (
        ("slack", [(t.start_ns, t.slack_us) for t in traces]),
        ("wait", [(t.start_ns, t.wait_us) for t in traces]),
        ("lost", [(t.start_ns, t.lost_us) for t in traces]),
    ):
        measured = Counter((start, us) for start, us in values if us)
        assert Counter(sample for sample in counters[name] if sample[1]) == measured
