"""A run's record, as ``sglang-fence run --record`` writes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sglang_fence.cli.report.checking import count, duration, moment, us, word
from sglang_fence.cli.report.facts import (
    FORWARD,
    SETTINGS,
    TRACKS,
    Block,
    Fallback,
    Figure,
    ModeRow,
    RunFacts,
    StepRow,
    Timeline,
)
from sglang_fence.cli.report.naming import category_of, counts
from sglang_fence.contract import REASONS, FallbackReason, FenceKind
from sglang_fence.observe.counting import many

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MARGIN = 1.03
"""A timeline is drawn so much longer than its step is, so that what stands at the end can be told from the edge."""

_FIGURES = {
    "device": "device",
    "policy": "barrier",
    "requests": "requests",
    "steps": "steps",
    "tokens": "tokens",
    "tokens_per_s": "tokens/s",
    "acceptance": "drafts accepted",
    "retractions": "retractions",
    "lost_us": "lost time, µs",
    "hazard_count": "hazards",
    "unresolved": "steps whose times were not read",
}
_WORDS = frozenset({"device", "policy"})
_INAPPLICABLE = frozenset({"acceptance"})
"""None here means that there is no such thing in this run, and not that it wasn't measured."""


def facts_of_record(title: str, told: Mapping[str, Any]) -> RunFacts:
    """Return what a page shows of it.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: it isn't whole.
    """
    run, traces = told["run"], told["traces"]
    figures = (
        Figure(key, _label(key, label, run), word(run[key]) if key in _WORDS else us(run[key]))
        for key, label in _FIGURES.items()
        if run[key] is not None or key not in _INAPPLICABLE
    )
    candidates = tuple(_step(index, trace, trace["resolved"]) for index, trace in enumerate(traces))
    return RunFacts(
        title=title,
        kind="the record of a run",
        figures=tuple(figures),
        fence={kind: count(steps) for kind, steps in run["fence"].items() if steps},
        modes=tuple(_mode(mode, found) for mode, found in run["modes"].items()),
        fallbacks=tuple(_fallback(found) for found in run["fallbacks"]),
        steps=tuple(_step(index, row, row["ends"]) for index, row in enumerate(told["steps"])),
        candidates=candidates,
        draw=lambda steps: [_timeline(step, traces[step.index]) for step in steps],
        sums=_sums(run),
        setting={key: word(run[key]) for key in SETTINGS if run[key] is not None},
        notes=tuple(_notes(told, count(run["steps"]))),
    )


def _label(key: str, label: str, run: Mapping[str, Any]) -> str:
    if key == "lost_us" and run["fence"].get(FenceKind.COARSE, 0):
        return f"{label}, from {run['lost_from']:,} of {many(run['fence'][FenceKind.COARSE], 'coarse step')}"
    return f"{label} (not checked)" if key == "hazard_count" and run[key] is None else label


def _sums(run: Mapping[str, Any]) -> str:
    coarse, known = count(run["fence"].get(FenceKind.COARSE, 0)), count(run["lost_from"])
    every = 0 if run["timing_every"] is None else count(run["timing_every"])
    if not coarse:
        return "No step was coarse, so nothing was lost to a fence."
    of = f"{known:,} of {many(coarse, 'coarse step')}"
    if not known:
        return (
            f"What was lost isn't known: it was measured on {of} that stand for others. A step that is traced out of "
            "turn stands for itself alone."
        )
    if every == 1:
        return f"Lost time is the sum over the steps on which it was measured: {of}."
    return (
        "Sums of lost time and lost slack are estimates that stand for all steps, also for those that weren't timed: "
        f"lost time was measured on {of}, and each of them counts {every:,} times, since one step in {every:,} is "
        "timed in turn."
    )


def _mode(mode: str, found: Mapping[str, Any]) -> ModeRow:
    slack, wait = found["slack_us"], found["wait_us"]
    return ModeRow(
        mode=mode,
        steps=count(found["steps"]),
        fence={kind: count(steps) for kind, steps in found["fence"].items()},
        ends=counts({ends: count(steps) for ends, steps in found["resolved"].items()}),
        slack_p50=duration(slack["p50"]),
        slack_p99=duration(slack["p99"]),
        wait_p50=duration(wait["p50"]),
        wait_p99=duration(wait["p99"]),
        lost_us=duration(found["lost_us"]),
    )


def _fallback(found: Mapping[str, Any]) -> Fallback:
    reason = word(found["reason"])
    known = reason in set(FallbackReason)
    return Fallback(
        mode=word(found["mode"]),
        reason=reason,
        expected=REASONS[FallbackReason(reason)].expected if known else None,
        steps=count(found["steps"]),
        lost_us=duration(found["lost_us"]),
        lost_from=count(found["lost_from"]),
        lost_slack_us=duration(found["lost_slack_us"]),
        lost_slack_from=count(found["lost_slack_from"]),
    )


def _step(index: int, row: Mapping[str, Any], ends: str) -> StepRow:
    return StepRow(
        index=index,
        number=count(row["step"]),
        mode=word(row["mode"]),
        fence=word(row["fence"]),
        reason=None if row["reason"] is None else word(row["reason"]),
        ends=word(ends),
        slack=duration(row["slack_us"]),
        wait=duration(row["wait_us"]),
        forward=duration(row["forward_us"]),
        lost=duration(row["lost_us"]),
    )


def _timeline(step: StepRow, trace: Mapping[str, Any]) -> Timeline:
    spans: Sequence[Mapping[str, Any]] = trace["spans"]
    blocks = tuple(
        Block(_track(span), _name(span), moment(span["start_us"]), moment(span["end_us"]), category_of(span["name"]))
        for span in spans
    )
    ends = [span["end_us"] for span in spans if span["track"] == FORWARD]
    released, slack = us(trace["released_us"]), duration(trace["slack_us"])
    forward_end = max(ends, default=None) if released is None or slack is None else released + slack
    waits = [span["start_us"] for span in spans if span["name"] == "barrier_wait"]
    length = _MARGIN * max([forward_end or 0.0, *(block.end for block in blocks)])
    start = waits[0] if waits else None
    return Timeline(step, length, blocks, waited_from=start, reads_end=released, forward_end=forward_end)


def _track(span: Mapping[str, Any]) -> str:
    if span["track"] not in TRACKS:
        msg = f"{span['track']!r} is no track"
        raise ValueError(msg)
    return word(span["track"])


def _name(span: Mapping[str, Any]) -> str:
    name = word(span["name"])
    return name if span["segment"] is None else f"{name} {count(span['segment'])}"


def _notes(told: Mapping[str, Any], steps: int) -> list[str]:
    timed, recorded = count(told["timed_steps"]), count(told["kept_steps"])
    fence = told["run"]["fence"]
    if fence.get(FenceKind.FINE) or fence.get(FenceKind.COARSE):
        what = "histograms hold those alone"
    else:
        what = "no fence held any step back, so there is neither slack nor wait, and forwards alone have times"
    said = [f"Device times were taken on {timed:,} of {many(steps, 'step')}; {what}."]
    if recorded < timed:
        said.append(f"Only the newest {recorded:,} of them are in the record.")
    traced = count(told["traced_steps"])
    said.append(
        f"Timelines are chosen among {many(len(told['traces']), 'traced step')}, which were kept of {traced:,}."
    )
    errors = [moment(trace["clock_error_us"]) for trace in told["traces"]]
    if errors and max(errors) > 0:
        said.append(f"In a timeline the streams may be off against the host by {max(errors):.1f} µs.")
    if any(trace["fence"] == FenceKind.COARSE for trace in told["traces"]):
        said.append("Lost time is how much later the next forward began than it would have behind a fine fence.")
    return said
