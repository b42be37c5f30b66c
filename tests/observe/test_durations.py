"""``settle``: against the design's formulas, written down once more in another way."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sglang_fence.catalogue.metrics import DURATION
from sglang_fence.contract import FallbackReason, FenceKind, ForwardMode
from sglang_fence.observe.durations import Moments, settle
from sglang_fence.observe.record import StepRecord

HAS_READS_END = (
    FallbackReason.FORCED,
    FallbackReason.STALE,
    FallbackReason.OWNER_SILENT,
    FallbackReason.UNRECORDED,
    FallbackReason.PREFILL_DISABLED,
    FallbackReason.BACKEND_UNKNOWN,
)

NS = st.integers(0, 5_000_000).map(lambda ns: ns / 1000)
"""Whole nanoseconds, in µs: what is rounded stays what it is."""

SMALL = st.integers(0, 20_000).map(lambda ns: ns / 1000)


class Case(NamedTuple):
    """What is known of a step."""

    fence: FenceKind
    reason: FallbackReason | None
    moments: Moments
    natural_gap: float
    latency: float

    def settled(self) -> StepRecord:
        record = StepRecord(None)
        record.reset(7, ForwardMode.DECODE, "native", 1, 1)
        record.timed, record.fence, record.reason = True, self.fence, self.reason
        settle(record, self.moments, natural_gap=self.natural_gap, latency=self.latency)
        return record


TIMES = (
    "previous_end",
    "host_start",
    "start",
    "metadata",
    "released",
    "wait",
    "next_host_start",
    "end",
    "next_start",
)
FENCES = (FenceKind.FINE, *[FenceKind.COARSE] * 4, FenceKind.DISABLED, FenceKind.ABSENT)
REASONS = (*HAS_READS_END, *HAS_READS_END, *FallbackReason)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Any moments, in any order: what goes wrong on a device isn't known beforehand."""
    fence = draw(st.sampled_from(FENCES))
    reason = draw(st.sampled_from(REASONS)) if fence is FenceKind.COARSE else None
    times = draw(st.lists(NS, min_size=len(TIMES), max_size=len(TIMES)))
    if draw(st.booleans()):
        times.sort()  # as they come where nothing goes wrong,
        if draw(st.booleans()):
            times[6:8] = times[7], times[6]  # or where the host is late
    unknown = draw(st.sets(st.sampled_from(TIMES), max_size=2))
    known: dict[str, Any] = {name: us for name, us in zip(TIMES, times, strict=True) if name not in unknown}
    moments = Moments(**known, fenced=draw(st.booleans()), next_alone=draw(st.booleans()))
    return Case(fence, reason, moments, draw(SMALL), draw(SMALL))


def test_the_cases_that_are_drawn_have_lost_time_often_enough() -> None:
    found: list[bool] = []

    @given(cases())
    @settings(max_examples=300, database=None, derandomize=True)
    def draw(case: Case) -> None:
        found.append(bool(case.settled().lost_us))

    draw()
    assert sum(found) > 10


def test_a_launch_that_came_late_was_not_held_back_by_the_fence() -> None:
    moments = Moments(start=0.0, end=100.0, released=10.0, wait=5.0, next_start=130.0, next_host_start=112.0)
    assert Case(FenceKind.COARSE, FallbackReason.FORCED, moments, 1.0, 0.0).settled().lost_us == 18.0


def exact(us: float | None) -> Fraction | None:
    return None if us is None else Fraction(round(us * 1000), 1000)


class Expected(NamedTuple):
    """The durations of the design, exactly; and which were below zero."""

    forward: Fraction | None = None
    gap: Fraction | None = None
    slack: Fraction | None = None
    wait: Fraction | None = None
    lost_slack: Fraction | None = None
    lost: Fraction | None = None
    gap_behind: Fraction | None = None
    below_zero: tuple[str, ...] = ()
    """In the order of the alphabet; both gaps have one name."""


def floor(us: Fraction) -> Fraction:
    return us if us > 0 else Fraction(0)


def lost_time(g_next: Fraction, f: Fraction, gap: Fraction, h: Fraction, a: Fraction, c: Fraction) -> Fraction:
    """How much later the next forward started than it would have, had the wait been over at C.

    The schedule stream would have gone on at the later of A and C instead of the later of A and F. Everything behind
    the wait moves forward by that much, but the next forward can start neither before this one has ended (and the gap
    that forwards always leave), nor before the host launches it.
    """
    went_on, could_go_on = max(a, f), max(a, c)
    moved = went_on - could_go_on if could_go_on < went_on else Fraction(0)
    would_have_started = g_next - moved
    for bound in (f + gap, h):
        would_have_started = max(would_have_started, bound)
    return floor(g_next - would_have_started)


def expect(case: Case) -> Expected:
    known = case.moments
    g, f, r = exact(known.start), exact(known.end), exact(known.released)
    a, before = exact(known.wait), exact(known.previous_end)
    below: list[str] = []

    def difference(name: str, later: Fraction | None, earlier: Fraction | None) -> Fraction | None:
        if later is None or earlier is None:
            return None
        if later < earlier:
            below.append(name)
        return floor(later - earlier)

    forward = None if g is None or f is None else floor(f - g)
    gap = difference("forward_gap", g, before)
    behind = difference("forward_gap", exact(known.next_start), f) if known.next_alone else None
    fenced = case.fence in {FenceKind.FINE, FenceKind.COARSE}
    bound = f if case.fence is FenceKind.COARSE else r
    if not fenced or f is None or a is None or bound is None:
        return Expected(forward, gap, gap_behind=behind, below_zero=tuple(sorted(below)))
    slack = difference("slack", f, bound)
    wait = max(a, bound) - a
    c = None
    if case.fence is FenceKind.COARSE and case.reason in HAS_READS_END:
        c = exact(known.metadata) if r is None else r
    lost_slack = difference("lost_slack", f, c)
    lost = None
    g_next, h = exact(known.next_start), exact(known.next_host_start)
    if c is not None and g_next is not None and h is not None:
        natural = exact(case.natural_gap)
        assert natural is not None
        lost = lost_time(g_next, f, natural, h, a, c)
    return Expected(forward, gap, slack, wait, lost_slack, lost, behind, tuple(sorted(below)))


@given(cases())
@settings(max_examples=500)
def test_every_duration_is_the_design_s(case: Case) -> None:
    record, expected = case.settled(), expect(case)
    assert exact(record.forward_us) == expected.forward
    assert exact(record.gap_us) == expected.gap
    assert exact(record.slack_us) == expected.slack
    assert exact(record.wait_us) == expected.wait
    assert exact(record.lost_slack_us) == expected.lost_slack
    assert exact(record.lost_us) == expected.lost
    assert exact(record.gap_behind_us) == expected.gap_behind
    assert tuple(sorted(record.clamped)) == expected.below_zero


@given(cases())
def test_nothing_is_negative_and_what_is_clamped_is_zero_and_a_label(case: Case) -> None:
    record = case.settled()
    us = {
        "slack": record.slack_us,
        "wait": record.wait_us,
        "forward": record.forward_us,
        "lost_slack": record.lost_slack_us,
        "lost": record.lost_us,
    }
    gaps = (record.gap_us, record.gap_behind_us)
    assert all(value is None or value >= 0.0 for value in (*us.values(), *gaps))
    assert all(us[name] == 0.0 if name in us else 0.0 in gaps for name in record.clamped)
    assert set(record.clamped) <= set(DURATION.values or ())


@given(cases())
def test_what_was_lost_is_no_more_than_what_the_wait_was_longer_by(case: Case) -> None:
    record = case.settled()
    if record.lost_us is None:
        return
    assert record.fence is FenceKind.COARSE
    assert record.lost_slack_us is not None
    assert record.wait_us is not None
    assert record.lost_us <= min(record.lost_slack_us, record.wait_us) + 1e-9


@pytest.mark.parametrize("reason", FallbackReason)
def test_which_coarse_steps_have_an_end_of_their_reads(reason: FallbackReason) -> None:
    moments = Moments(start=0.0, end=100.0, metadata=10.0, wait=5.0, next_start=130.0, next_host_start=20.0)
    record = Case(FenceKind.COARSE, reason, moments, 1.0, 0.0).settled()
    if reason in HAS_READS_END:
        assert (record.lost_slack_us, record.lost_us) == (90.0, 29.0)
    else:
        assert (record.lost_slack_us, record.lost_us) == (None, None)
    assert record.assumed == (reason is FallbackReason.BACKEND_UNKNOWN)


@given(cases())
def test_only_an_unaudited_backend_s_end_is_assumed(case: Case) -> None:
    record = case.settled()
    assert record.assumed == (record.reason is FallbackReason.BACKEND_UNKNOWN and record.lost_slack_us is not None)


@given(
    host=st.none() | NS,
    start=NS,
    end=NS,
    latency=st.integers(0, 50).map(float),
    fenced=st.booleans(),
)
@example(host=10.0, start=15.0, end=0.0, latency=5.0, fenced=True)
@example(host=10.0, start=15.001, end=0.0, latency=5.0, fenced=True)
def test_the_host_was_last_where_the_forward_starts_as_soon_as_it_is_launched(
    host: float | None, start: float, end: float, latency: float, *, fenced: bool
) -> None:
    moments = Moments(start=start, previous_end=end, host_start=host, fenced=fenced)
    record = Case(FenceKind.FINE, None, moments, 0.0, latency).settled()
    if host is None or not fenced:
        assert record.gap_last == "host"
        return
    early = latency - (start - host)
    if abs(early) > 0.002:  # a nanosecond either way is a tie
        assert record.gap_last == ("host" if early > 0 else "fence")


@pytest.mark.parametrize(("host", "last"), [(None, "host"), (95.0, "fence"), (118.0, "host")])
@pytest.mark.parametrize("fence", [FenceKind.COARSE, FenceKind.ABSENT])
def test_who_was_last_before_a_start_that_stands_alone(fence: FenceKind, host: float | None, last: str) -> None:
    moments = Moments(end=100.0, next_start=120.0, next_host_start=host, next_alone=True)
    record = Case(fence, None, moments, 0.0, 5.0).settled()
    assert (record.gap_behind_us, record.gap_behind_last) == (20.0, last if fence is FenceKind.COARSE else "host")


def test_without_the_step_before_there_is_no_gap_and_nobody_was_last() -> None:
    record = Case(FenceKind.FINE, None, Moments(start=4.0, end=9.0, host_start=4.0, fenced=True), 0.0, 0.0).settled()
    assert (record.gap_us, record.gap_last, record.forward_us) == (None, None, 5.0)
