"""*Server*: one server, from the verdict down to the observer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dashboards.source.frame import ANY_IS_BAD, LOST, ON_OFF, SHARE, dashboard, filled, traces
from dashboards.source.observer_panels import observer
from dashboards.source.panels import Look, Panel, Query, heat, named, number, series
from dashboards.source.queries import barrier, fine_share, lost_rate, lost_share, quantile, rate
from sglang_fence.mixin import wording

if TYPE_CHECKING:
    from grafana_foundation_sdk.builders import dashboard as build

_FALLBACKS = rate("coarse_fallbacks_total")
UNKNOWN = 'ends="unknown"'
_SMALL = Look(span=4, height=5)
_TO_TRACES = (
    "Traces",
    traces(
        '{ span.sglang_fence.reason = "${__field.labels.reason}" && span.sglang_fence.mode = "${__field.labels.mode}" }'
    ),
)


def server() -> build.Dashboard:
    """Return the dashboard."""
    text = "One server: is its fence fine, whose backend says no, what does it cost, and can the numbers be trusted?"
    board = dashboard("SGLang fence / Server", wording.SERVER, text, ranks=True)
    content = {
        "Verdict": _verdict(),
        "Steps and fallbacks": _steps(),
        "Slack and wait": _durations(),
        "Cost": _cost(),
        "Observer": observer(),
    }
    return filled(board, content)


def _verdict() -> list[Panel]:
    nobody = 'label_replace(vector(0), "runner", "none", "", "")'
    unknown = f"sum by (runner, mode, backend) ({rate('publications_total', UNKNOWN)})"
    return [
        number(
            "Fine share",
            "Share of fenced steps that waited for their read-done event alone. 0 %: every step is coarse.",
            [Query(fine_share(), "fine")],
            _SMALL._replace(unit="percentunit", steps=SHARE, greatest=1),
        ),
        named(
            "Main reason",
            "The reason of most coarse steps. Each has its section in the runbook of SGLangFenceUnknownFallbacks.",
            [Query(f"topk(1, sum by (reason, mode) ({_FALLBACKS}))", "{{reason}}, {{mode}}")],
            _SMALL._replace(unit="ops", span=5),
        ),
        named(
            "Whose backend says UNKNOWN",
            "The runner and phase that resolve to UNKNOWN most often. A draft runner's draft_extend makes every round "
            "of EAGLE coarse, whatever the target's backend declares: upgrade SGLang, or audit the draft's backend.",
            [Query(f"topk(1, {unknown}) or on () {nobody}", "{{runner}} runner {{mode}} {{backend}}")],
            _SMALL._replace(unit="ops", span=5),
        ),
        number(
            "Lost share of forward time",
            "How much later forwards started than behind fine fences, over forward time: what it costs.",
            [Query(f"sum({lost_share('job')})", "lost")],
            _SMALL._replace(unit="percentunit", steps=LOST),
        ),
        number(
            "Barrier",
            "Whether the schedule stream waits at all.",
            [Query(f"min({barrier()})", "barrier")],
            _SMALL._replace(span=3, names=ON_OFF, steps=((None, "red"), (1, "green"))),
        ),
        number(
            "Unsound steps",
            "Steps a second that let go before their reads had ended. Must be 0.",
            [Query(f"sum({rate('unsound_resolutions_total')})", "unsound")],
            _SMALL._replace(unit="ops", span=3, steps=ANY_IS_BAD),
        ),
    ]


def _steps() -> list[Panel]:
    roles = f"{rate('owner_changes_total')}"
    stale = f"{rate('stale_publications_total')}"
    return [
        series(
            "Steps by mode and fence",
            "What was launched, and what held the schedule stream back behind it; and what SGLang launched only when "
            "the results of the step before were processed.",
            [
                Query(f"sum by (mode, fence) ({rate('steps_total')})", "{{mode}} {{fence}}"),
                Query(f"sum by (mode) ({rate('unoverlapped_launches_total')})", "{{mode}} not overlapped"),
            ],
            Look("ops"),
        ),
        series(
            "Fallbacks by backend and reason",
            "Coarse steps. A series leads to the traces of its mode and reason.",
            [
                Query(
                    f"sum by (mode, backend, reason) ({_FALLBACKS}) > 0 or on () sum({_FALLBACKS})",
                    "{{mode}} {{backend}} {{reason}}",
                )
            ],
            Look("ops", link=_TO_TRACES),
        ),
        series(
            "Phases by runner and resolved end",
            "Each phase that a runner served, by where its shared reads end. A step has one or more: with speculation, "
            "draft, verify and draft-extend. The owner's last phase decides the fence.",
            [
                Query(
                    f"sum by (runner, mode, ends) ({rate('publications_total')})",
                    "{{runner}} {{mode}} {{ends}}",
                )
            ],
            Look("ops"),
        ),
        series(
            "Steps by mode and resolved end",
            "Where shared reads end, of the graphs that were replayed.",
            [Query(f"sum by (mode, ends) ({rate('steps_total')})", "{{mode}} {{ends}}")],
            Look("ops"),
        ),
        series(
            "Downgrades",
            "Steps whose reads end later than declared, because the graph has no marker.",
            [Query(f"sum by (backend, mode, cause) ({rate('downgrades_total')})", "{{mode}} {{backend}} {{cause}}")],
            Look("ops"),
        ),
        series(
            "Owner changes and stale publications",
            "Steps whose last shared read has another owner than the step before, and what lay in a mailbox too long.",
            [
                Query(f"sum by (runner) ({roles})", "owner becomes {{runner}}"),
                Query(f"sum by (runner) ({stale})", "stale, {{runner}}"),
            ],
            Look("ops"),
        ),
    ]


def _durations() -> list[Panel]:
    def percentiles(metric: str, by: str, legend: str) -> list[Query]:
        return [Query(quantile(q, metric, by), f"p{q * 100:g} {legend}", exemplars=True) for q in (0.5, 0.99)]

    seconds = Look("s")
    return [
        heat(
            "Slack",
            "How much sooner than a coarse fence the fence let go: the more the better. Dots are traced steps.",
            f"sum by (le) ({rate('slack_seconds_bucket')})",
        ),
        heat(
            "Wait",
            "How long the schedule stream stalled at the fence. It blocks that stream, not the host.",
            f"sum by (le) ({rate('wait_seconds_bucket')})",
        ),
        series(
            "Slack by mode and resolved end",
            "Percentiles. About zero for post_replay by design; for pre_replay and in_replay, streams are serialised.",
            percentiles("slack_seconds", "mode, ends", "{{mode}} {{ends}}"),
            seconds,
        ),
        series(
            "Wait by mode and fence",
            "Percentiles. Milliseconds are normal where forwards take milliseconds.",
            percentiles("wait_seconds", "mode, fence", "{{mode}} {{fence}}"),
            seconds,
        ),
        series(
            "Forward by mode and fence",
            "Device time of forwards, up to the barrier call.",
            percentiles("forward_seconds", "mode, fence", "{{mode}} {{fence}}"),
            seconds,
        ),
        series(
            "Gap between forwards",
            "Idle time of the forward stream before a step, by who was the last to let it start. What a coarse fence "
            "costs shows here, under fence.",
            percentiles("forward_gap_seconds", "last", "{{last}}"),
            seconds,
        ),
    ]


def _cost() -> list[Panel]:
    return [
        series(
            "Lost seconds per second",
            "The cost: how much later forwards started. Each timed step stands for so many.",
            [Query(lost_rate("lost_seconds_total", "mode, reason"), "{{mode}} {{reason}}")],
            Look("s"),
        ),
        series(
            "Lost slack per second",
            "The opportunity, far more than the cost. Under backend_unknown the end of the reads is assumed.",
            [Query(lost_rate("lost_slack_seconds_total", "mode, reason"), "{{mode}} {{reason}}")],
            Look("s"),
        ),
    ]
