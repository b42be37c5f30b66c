"""Explanations in words, and as JSON."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sglang_fence.observe.counting import many
from sglang_fence.observe.flight.explaining import What, Who
from sglang_fence.observe.flight.facts import Clock, Stage

if TYPE_CHECKING:
    from sglang_fence.observe.flight.comparing import Comparison
    from sglang_fence.observe.flight.explaining import Standing, Wait
    from sglang_fence.observe.flight.facts import StepFacts

_SECOND_NS = 1_000_000_000

_KNOWN_BY = {
    "results": "its results are in the host's hands",
    "timing events": "its timing events were read",
    "synchronised": "the device was synchronised behind it",
}
_HOST = {
    What.RESULTS: "for the results of step {step}",
    What.LAUNCH: "in the launch of step {step}",
    What.BARRIER: "at the barrier of step {step}, whose wait isn't enqueued",
}


def paragraph(standing: Standing) -> list[str]:
    """Return what one dump says: a heading, then a line for each fact."""
    dump, newest = standing.dump, standing.dump.newest
    at = datetime.fromtimestamp(dump.wall_ns / 1e9, tz=UTC).strftime("%Y-%m-%d %H:%M:%S")
    cause = dump.cause.value if dump.detail is None else f"{dump.cause.value}: {dump.detail}"
    kept = many(len(dump.steps), "step")
    lines = [f"{standing.label} (pid {dump.pid}), dumped at {at} UTC ({cause}), {kept} kept"]
    if newest is not None:
        lines.append(_newest(newest))
    if standing.completed is not None:
        lines.append(f"last completed: step {standing.completed} ({_KNOWN_BY[standing.known_by]})")
    elif dump.steps:
        lines.append("last completed: not known")
    else:
        lines.append("no step had begun when it was written, so it says nothing of the fence")
    if standing.idle and dump.steps:
        lines.append("nothing is waited for: every step is over")
    lines += [sentence(wait, standing) for wait in standing.waits]
    if dump.stack and all(wait.who is not Who.HOST for wait in standing.waits):
        lines.append(f"the serving thread is in {dump.stack[0]}")
    lines += [f"can't be known: {one}" for one in standing.unknown]
    return lines


def sentence(wait: Wait, standing: Standing) -> str:
    """Return one wait in words."""
    since = "" if wait.since_ns is None else _time(wait.since_ns, standing)
    ago = since and f", {since} ago"
    if wait.who is Who.HOST:
        where = f", in {standing.dump.stack[0]}" if standing.dump.stack else ""
        return f"the host waits {_HOST[wait.what].format(step=wait.step)}{since and f', for {since}'}{where}"
    if wait.who is Who.FORWARD_STREAM:
        return f"the forward stream isn't known to be done with step {wait.step}, the oldest under way, begun{ago[1:]}"
    if wait.what is What.FORWARD:
        return f"the schedule stream was told to wait for all of the forward of step {wait.step}{ago}"
    ends = "" if wait.ends is None else f", {wait.ends.name}"
    event = "an event" if wait.event is None else f"event {wait.event:#x}"
    record = "a record whose number isn't known" if wait.record is None else f"record {wait.record}"
    return f"the schedule stream was told to wait for {record} of step {wait.step} ({event}{ends}){ago}"


def _newest(step: StepFacts) -> str:
    if step.stage in {Stage.LAUNCHING, Stage.LAUNCHED}:
        fence = "its fence isn't decided"
    elif step.stage is Stage.UNFENCED:
        fence = "its loop has no barrier"
    else:
        reason = "" if step.reason is None else f" ({step.reason.value})"
        fence = f"fence {step.fence.value}{reason}"
    stage = step.stage.value.replace("_", " ")
    requests = many(step.batch_size, "request")
    return f"newest step: {step.step}, {step.mode} on {step.backend}, {requests}, {stage}, {fence}"


def to_json(comparison: Comparison) -> dict[str, Any]:
    """Return all of it."""
    return {
        "ranks": [_standing_to_json(one) for one in comparison.standings],
        "behind": list(comparison.behind),
        "why": comparison.why,
        "unknown": list(comparison.unknown),
        "left_out": comparison.left_out,
    }


def _standing_to_json(standing: Standing) -> dict[str, Any]:
    dump, newest = standing.dump, standing.dump.newest
    return {
        "rank": dump.rank,
        "pid": dump.pid,
        "file": standing.file,
        "cause": dump.cause.value,
        "detail": dump.detail,
        "wall_ns": dump.wall_ns,
        "newest": None if newest is None else {"step": newest.step, "stage": newest.stage.value},
        "completed": standing.completed,
        "completed_known_by": standing.known_by,
        "idle": standing.idle,
        "waits": [
            {
                "who": wait.who.value,
                "what": wait.what.value,
                "step": wait.step,
                "record": wait.record,
                "event": wait.event,
                "ends": None if wait.ends is None else wait.ends.name,
                "since_ns": wait.since_ns,
            }
            for wait in standing.waits
        ],
        "unknown": list(standing.unknown),
        "stack": list(dump.stack),
    }


def _time(nanoseconds: int, standing: Standing) -> str:
    amount = f"{nanoseconds / 1e9:.3f} s" if nanoseconds >= _SECOND_NS else f"{nanoseconds / 1e6:.3f} ms"
    return amount + (" of virtual time" if standing.dump.clock is Clock.VIRTUAL else "")
