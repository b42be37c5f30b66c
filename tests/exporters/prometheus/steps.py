"""Real step records, and a ledger in which every metric of the catalogue has something to say."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from sglang_fence.contract import FallbackReason, FenceKind, ForwardMode, SharedReadEnds
from sglang_fence.observe.ledger import Ledger
from sglang_fence.observe.observer import Observer
from sglang_fence.observe.record import Phase, StepRecord
from sglang_fence.observe.trace import StepTrace

if TYPE_CHECKING:
    from collections.abc import Iterable

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
DURATIONS = ("slack_us", "wait_us", "forward_us", "gap_us", "lost_slack_us", "lost_us")


@dataclass(frozen=True)
class Step:
    """One step to be; durations in µs, by the record's field."""

    mode: ForwardMode = ForwardMode.DECODE
    backend: str = "native"
    declared: SharedReadEnds = SharedReadEnds.IN_REPLAY
    resolved: SharedReadEnds = SharedReadEnds.IN_REPLAY
    fence: FenceKind = FenceKind.FINE
    reason: FallbackReason | None = None
    downgrade: str | None = None
    timed: bool = True
    us: dict[str, float] = field(default_factory=dict[str, float])
    gap_last: str = "host"
    clamped: tuple[str, ...] = ()
    role: str = "target"


def record_of(step: Step, number: int = 1) -> StepRecord:
    """Return the record that the probe would hand on."""
    record = StepRecord(None)
    record.reset(number, step.mode, step.backend, 4, 4)
    record.phases.append(Phase(step.mode, step.role, step.backend, step.declared, step.resolved, step.downgrade))
    record.declared, record.resolved, record.downgrade = step.declared, step.resolved, step.downgrade
    record.fence, record.reason, record.timed = step.fence, step.reason, step.timed
    if step.timed:
        record.clamped = step.clamped
        for name, us in step.us.items():
            setattr(record, name, us)
        if "gap_us" in step.us:
            record.gap_last = step.gap_last
    return record


def trace_of(step: Step, end_ns: int) -> StepTrace:
    """Return the trace of a sampled step."""
    phase = Phase(step.mode, step.role, step.backend, step.declared, step.resolved, step.downgrade)
    us = {name: step.us.get(name) for name in DURATIONS}
    return StepTrace(
        step=1,
        mode=step.mode,
        backend=step.backend,
        batch_size=4,
        tokens=4,
        phases=(phase,),
        declared=step.declared,
        resolved=step.resolved,
        downgrade=step.downgrade,
        fence=step.fence,
        reason=step.reason,
        start_ns=end_ns - 1_000_000,
        end_ns=end_ns,
        spans=(),
        slack_us=us["slack_us"],
        wait_us=us["wait_us"],
        forward_us=us["forward_us"],
        gap_us=us["gap_us"],
        gap_last=step.gap_last if us["gap_us"] is not None else None,
        lost_slack_us=us["lost_slack_us"],
        assumed=False,
        lost_us=us["lost_us"],
        released_ns=None,
        bound_record=None,
        waited_for=None,
        links=(),
        error_ns=0,
    )


def add(ledger: Ledger, steps: Iterable[Step]) -> None:
    """Let the ledger hear of each."""
    for number, step in enumerate(steps):
        ledger.step_finished(record_of(step, number))


COARSE = Step(
    mode=ForwardMode.EXTEND,
    declared=SharedReadEnds.UNKNOWN,
    resolved=SharedReadEnds.UNKNOWN,
    fence=FenceKind.COARSE,
    reason=FallbackReason.BACKEND_UNKNOWN,
    us={"wait_us": 20.0, "forward_us": 5_000.0, "lost_slack_us": 4_000.0, "lost_us": 25.0},
)
FINE = Step(us={"slack_us": 900.0, "wait_us": 1.0, "forward_us": 1_000.0, "gap_us": 3.0})


class Slow(Observer):
    """An exporter that turned steps away."""

    @property
    def dropped_steps(self) -> int:
        return 3


def declared_ledger() -> Ledger:
    """Return a ledger at start: two modes are declared, nothing has happened."""
    ledger = Ledger()
    facts = ledger.facts
    facts.barrier_enabled, facts.barrier_why = True, "asynchronous_device"
    facts.timing_enabled, facts.timing_why, facts.timing_every = True, "timing_events", 8
    facts.declarations = (
        ("native", ForwardMode.DECODE, SharedReadEnds.IN_REPLAY),
        ("native", ForwardMode.EXTEND, SharedReadEnds.UNKNOWN),
    )
    return ledger


def full_ledger() -> Ledger:
    """Return a ledger in which every metric has a series, and most aren't 0."""
    ledger = declared_ledger()
    unsound = Step(declared=SharedReadEnds.POST_REPLAY, resolved=SharedReadEnds.IN_REPLAY, timed=False)
    late = Step(resolved=SharedReadEnds.POST_REPLAY, downgrade="no_marker", us={"slack_us": 0.0}, clamped=("slack",))
    add(ledger, [FINE, FINE, COARSE, unsound, late])
    facts, health = ledger.facts, ledger.health
    facts.config = {
        "version": "1.2.3",
        "device": "simulated",
        "enable_war_barrier": "true",
        "force_coarse_war_barrier": "false",
        "enable_prefill_war_read_done": "true",
    }
    facts.audits = (("native", ForwardMode.DECODE, SharedReadEnds.IN_REPLAY, "sound"),)
    facts.loop = "overlap"
    health.cost_ns["step_finished"] = 1_500
    health.dropped_steps["queue"] = 2
    health.unresolved["overrun"] = 1
    health.errors["step_traced"] = 4
    health.calibration_us["idle_wait"] = 2.75
    health.clock_error_ns = 500
    health.hooks["sglang.srt.managers.scheduler.Scheduler.run_batch"] = "installed"
    health.owner_changes["draft"] = 6
    health.unoverlapped_launches["extend"] = 8
    health.stale_publications["target"] = 7
    health.exporters["otel"] = Slow()
    return ledger


# Sixteenths of a µs: exact in binary, so that sums are, and so that nothing is rounded onto a bucket's edge.
_us = st.one_of(st.sampled_from([float(2**k) for k in range(26)]), st.integers(0, 2**29).map(lambda n: n / 16))


@st.composite
def steps(draw: st.DrawFn) -> Step:
    """Any step that the probe could tell of."""
    fence = draw(st.sampled_from(FenceKind))
    timed = draw(st.booleans())
    return Step(
        mode=draw(st.sampled_from(ForwardMode)),
        backend=draw(st.sampled_from(["native", "trtllm_mha"])),
        declared=draw(st.sampled_from(SharedReadEnds)),
        resolved=draw(st.sampled_from(SharedReadEnds)),
        fence=fence,
        reason=draw(st.sampled_from(FallbackReason)) if fence is FenceKind.COARSE else None,
        downgrade=draw(st.sampled_from([None, "no_marker"])),
        timed=timed,
        us=draw(st.dictionaries(st.sampled_from(DURATIONS), _us)) if timed else {},
        gap_last=draw(st.sampled_from(["fence", "host"])),
        role=draw(st.sampled_from(["target", "draft"])),
    )
