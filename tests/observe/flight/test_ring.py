"""What the probe writes into the ring, against what observers hear of the same steps."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_fence.contract import FenceKind, ForwardMode, SharedReadEnds
from sglang_fence.errors import ConfigError
from sglang_fence.observe.flight.ring import FlightRing
from sglang_fence.observe.flight.snapshot import progress_of, stack_of, steps_of
from sglang_fence.observe.ledger import Ledger
from sglang_fence.observe.observer import Observer, Observers
from sglang_fence.observe.probe import StepProbe
from sglang_fence.observe.record import Phase
from sglang_fence.observe.sampling import Sampling
from tests.observe.watched import watch

if TYPE_CHECKING:
    from sglang_fence.contract import FallbackReason
    from sglang_fence.observe.flight.facts import StepFacts
    from sglang_fence.observe.record import StepRecord

ENDS = SharedReadEnds.IN_REPLAY
PHASE = Phase(ForwardMode.DECODE, "target", "native", ENDS, ENDS, None)


class Fine:
    """A verdict."""

    kind = FenceKind.FINE
    reason: FallbackReason | None = None

    def __init__(self, order: int) -> None:
        self.published: tuple[SharedReadEnds, int] | None = (ENDS, order)


def probe_of(steps: int) -> StepProbe:
    return StepProbe(Observers([Ledger()]), ring=FlightRing(steps))


def kept(probe: StepProbe) -> tuple[StepFacts, ...]:
    assert probe.ring is not None
    return steps_of(probe.ring.records, probe.newest)


@given(capacity=st.integers(1, 9), count=st.integers(0, 30))
def test_the_last_steps_are_kept_the_oldest_first(capacity: int, count: int) -> None:
    probe = probe_of(capacity)
    event = object()
    for step in range(count):
        probe.step_started(step, ForwardMode.DECODE, "native", 8, 8)
        probe.resolved(PHASE)
        probe.at_barrier(Fine(1000 + step), event)
        probe.after_wait(Fine(1000 + step))
    found = kept(probe)
    assert [facts.step for facts in found] == list(range(max(0, count - capacity), count))
    for facts in found:
        assert (facts.record, facts.event, facts.phases) == (1000 + facts.step, id(event), (PHASE,))
        assert facts.issued_ns is not None
        assert facts.entered_ns is not None
        assert facts.started_ns <= facts.entered_ns <= facts.issued_ns


def test_nothing_of_an_earlier_step_is_left_in_its_place() -> None:
    probe = probe_of(1)
    probe.step_started(0, ForwardMode.DECODE, "native", 8, 8)
    probe.resolved(PHASE)
    probe.at_barrier(Fine(1), object())
    probe.after_wait(Fine(1))
    probe.step_started(1, ForwardMode.EXTEND, "other", 2, 9)
    (facts,) = kept(probe)
    assert (facts.step, facts.mode, facts.backend, facts.batch_size, facts.tokens) == (1, "extend", "other", 2, 9)
    assert (facts.phases, facts.record, facts.event, facts.fence) == ((), None, None, FenceKind.ABSENT)
    assert (facts.launched_ns, facts.entered_ns, facts.issued_ns, facts.stage) == (None, None, None, "launching")


class Served(Observer):
    """Keeps what a step's record says at its barrier."""

    def __init__(self) -> None:
        self.at_barrier: dict[int, tuple[object, ...]] = {}

    def barrier_applied(self, record: StepRecord) -> None:
        self.at_barrier[record.step] = said(record)


def said(step: StepRecord | StepFacts) -> tuple[object, ...]:
    return (step.mode, step.backend, step.declared, step.resolved, step.downgrade, step.fence, step.reason)


@pytest.mark.parametrize("timing_every", [0, 1, 5])
@pytest.mark.parametrize("options", [{}, {"speculative": "eagle"}, {"pdmux": True}, {"fence": "coarse"}])
def test_an_engines_steps_are_kept_as_observers_hear_of_them(timing_every: int, options: dict[str, Any]) -> None:
    served, ring = Served(), FlightRing(1000)
    watched = watch(Sampling(timing_every=timing_every), observers=[served], ring=ring, **options)
    watched.serve()
    probe = watched.engine.probe
    found = steps_of(ring.records, probe.newest)
    assert {facts.step: said(facts) for facts in found} == served.at_barrier
    assert len(found) > 20
    finished = watched.finished
    for facts in found:
        assert facts.phases == tuple(finished[facts.step].phases)
        assert facts.record == finished[facts.step].bound_record
        assert (facts.event is not None) == (facts.fence is FenceKind.FINE)
    progress = progress_of(probe.progress)
    assert progress.settled_ns is not None
    assert all(facts.started_ns <= progress.settled_ns for facts in found)
    assert progress.in_order == ("pdmux" not in options)


def test_a_loop_without_a_barrier_keeps_its_steps_as_unfenced() -> None:
    ring = FlightRing()
    watched = watch(Sampling(timing_every=0), ring=ring, overlap=False)
    watched.serve(2, 4)
    assert {facts.stage.value for facts in steps_of(ring.records, watched.engine.probe.newest)} == {"unfenced"}


def test_results_in_hand_are_noted_while_it_serves() -> None:
    heard: list[tuple[int, int, int]] = []
    timed: list[int] = []

    class Looking(Observer):
        def step_started(self, step: int) -> None:
            progress = watched.engine.probe.progress
            heard.append((step, progress.in_hand, progress.awaited))
            timed.append(progress.timed)

    watched = watch(Sampling(timing_every=1), observers=[Looking()], ring=FlightRing())
    watched.serve()
    overlapped = [(step, in_hand) for step, in_hand, _ in heard if step - in_hand == 2]
    assert len(overlapped) > 10  # an overlapped launch has the results of the last but one
    assert {awaited for _, _, awaited in heard} == {-1}
    assert timed == sorted(timed)
    assert timed[-1] >= heard[-1][0] - 3  # what is read is at most two steps behind what could be


def test_without_observers_nothing_is_recorded() -> None:
    assert not StepProbe(Observers(), ring=FlightRing()).recording


def test_a_step_that_begins_while_it_is_read_is_left_out() -> None:
    probe = probe_of(1)
    probe.step_started(0, ForwardMode.DECODE, "native", 8, 8)
    record = probe.newest

    class Moving:
        """Reads as the record, which moves on with each look."""

        def __getattr__(self, name: str) -> object:
            record.step += 1
            return getattr(record, name)

    assert steps_of((), Moving()) == ()  # type: ignore[arg-type] # stands in for a record


def test_the_stack_names_functions_and_lines_and_ends_somewhere() -> None:
    frames = stack_of(threading.get_ident())
    assert any(":test_the_stack_names_functions_and_lines_and_ends_somewhere:" in frame for frame in frames)

    def deep(left: int) -> tuple[str, ...]:
        return deep(left - 1) if left else stack_of(threading.get_ident())

    assert len(deep(min(200, sys.getrecursionlimit() // 2))) == 64
    assert stack_of(None) == ()
    assert stack_of(1) == ()


@pytest.mark.parametrize("steps", [0, -1, 10**6])
def test_sizes_that_cant_be_are_refused(steps: int) -> None:
    with pytest.raises(ConfigError, match="give 1 to 65536, or 0 for none"):
        FlightRing(steps)
