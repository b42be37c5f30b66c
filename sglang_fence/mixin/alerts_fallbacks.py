"""Alerts on steps that were coarse, and shouldn't have been."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.catalogue import UNEXPECTED_REASONS
from sglang_fence.contract import FallbackReason
from sglang_fence.mixin.model import Alert, Severity
from sglang_fence.mixin.wording import PERCENT, RANK, SERVER, WHERE, enough, number

if TYPE_CHECKING:
    from sglang_fence.mixin.parameters import Parameters

PAGED_MODES = ("decode", "target_verify", "draft_extend")
"""Modes in which UNKNOWN pages. Stock backends leave extend and mixed UNKNOWN, and that alone must page nobody."""

_UNKNOWN = FallbackReason.BACKEND_UNKNOWN.value
_UNEXPLAINED = "|".join(reason for reason in UNEXPECTED_REASONS if reason != _UNKNOWN)

# Who resolved to UNKNOWN in the round: with speculation it often isn't the runner that the operator thinks of.
_WHO = (
    '{{ range query (printf "sum by (runner, mode, backend) (rate(sglang_fence_publications_total{job=%q,'
    'instance=%q,ends=\\"unknown\\",mode!~\\"extend|mixed\\"}[WINDOW])) > 0" $labels.job $labels.instance) }}'
    " The {{ .Labels.runner }} runner's {{ .Labels.mode }} phase is the one: its backend {{ .Labels.backend }} declares"
    " UNKNOWN."
    '{{ if eq .Labels.runner "draft" }} With EAGLE the draft runner owns the last shared read, so that every round is'
    " coarse whatever the target's backend says: upgrade SGLang, or audit the draft runner's backend and declare where"
    " its draft-extend reads end.{{ end }}{{ end }}"
)


def fallback_alerts(parameters: Parameters) -> list[Alert]:
    """Return UNKNOWN by mode, risen against the day before, one odd rank, and what has no good explanation."""
    return [
        _unknown(parameters, Severity.WARNING),
        _unknown(parameters, Severity.CRITICAL),
        _unexplained(parameters),
        _risen(parameters),
        _rank(parameters),
    ]


def _unknown(parameters: Parameters, severity: Severity) -> Alert:
    limits = parameters.thresholds
    shares = [
        f'sglang_fence:server_fallbacks:ratio{{mode="{mode}", reason="{_UNKNOWN}"}}'
        f" > {number(getattr(limits, f'{mode}_{severity.value}'))}"
        for mode in PAGED_MODES
    ]
    traffic = enough(parameters.window_s, limits.min_steps, "sglang_fence:server_fenced_steps:rate")
    return Alert(
        "SGLangFenceUnknownFallbacks",
        severity,
        "(\n    " + "\n  or\n    ".join(shares) + f"\n)\nand ignoring (reason)\n  {traffic}",
        parameters.hold if severity is Severity.WARNING else parameters.hold_critical,
        f"{PERCENT} of {{{{ $labels.mode }}}} steps are coarse: {_UNKNOWN}",
        f"On {WHERE}, {PERCENT} of {{{{ $labels.mode }}}} steps of backend {{{{ $labels.backend }}}} waited for the "
        f"whole forward over the last {parameters.window}, reason {{{{ $labels.reason }}}}: nobody has audited where "
        f"the shared reads end.{_WHO.replace('WINDOW', parameters.window)} What it costs: lost time, on the dashboard.",
        SERVER,
    )


def _unexplained(parameters: Parameters) -> Alert:
    limits = parameters.thresholds
    traffic = enough(parameters.window_s, limits.min_steps, "sglang_fence:server_fenced_steps:rate")
    all_modes = enough(
        parameters.window_s, limits.min_steps, "sum without (backend) (sglang_fence:server_fenced_steps:rate)"
    )
    share = number(limits.unexplained)
    return Alert(
        "SGLangFenceUnexplainedFallbacks",
        Severity.WARNING,
        "(\n"
        f'    sglang_fence:server_fallbacks:ratio{{reason=~"{_UNEXPLAINED}"}} > {share}\n'
        f"  and ignoring (reason)\n    {traffic}\n"
        ")\nor\n(\n"
        '    label_replace(sglang_fence:server_unexplained:ratio, "reason", "unexplained", "", "")'
        f" > {share}\n"
        f"  and ignoring (reason)\n    {all_modes}\n)",
        parameters.hold,
        f"{PERCENT} of {{{{ $labels.mode }}}} steps are coarse: {{{{ $labels.reason }}}}",
        f"On {WHERE}, {PERCENT} of {{{{ $labels.mode }}}} steps were coarse over the last {parameters.window} for a "
        "reason that no healthy deployment shows: {{ $labels.reason }}. It points at a fault in a runner, a worker or "
        "an algorithm, not at a setting.",
        SERVER,
    )


def _risen(parameters: Parameters) -> Alert:
    limits, day = parameters.thresholds, parameters.day
    ratio = "sglang_fence:server_unexpected_fallbacks:ratio"
    steps = "sum without (backend) (sglang_fence:server_fenced_steps:rate{})"
    now, before = (
        enough(parameters.window_s, limits.min_steps, steps.format(offset)) for offset in ("", f" offset {day}")
    )
    return Alert(
        "SGLangFenceFallbacksRisen",
        Severity.WARNING,
        f"{ratio} - {ratio} offset {day} > {number(limits.risen)}\nand\n  {now}\nand\n  {before}",
        parameters.hold,
        f"Coarse {{{{ $labels.mode }}}} steps have risen by {PERCENT} of all against {day} before",
        f"On {WHERE}, unexpected fallbacks of {{{{ $labels.mode }}}} steps are {PERCENT} of steps above what they were "
        f"{day} ago. Look at what was deployed since: a version, a backend, a switch.",
        SERVER,
    )


def _rank(parameters: Parameters) -> Alert:
    limits = parameters.thresholds
    traffic = enough(parameters.window_s, limits.min_steps, "sum without (backend) (sglang_fence:fenced_steps:rate)")
    return Alert(
        "SGLangFenceRankCoarse",
        Severity.WARNING,
        f"sglang_fence:fine_steps:ratio < {number(limits.rank_coarse)}\n"
        "and on (job, model_name, mode)\n"
        f"  max by (job, model_name, mode) (sglang_fence:fine_steps:ratio) > {number(limits.rank_fine)}\n"
        f"and\n  {traffic}",
        parameters.hold,
        f"One rank is coarse while its peers are fine: only {PERCENT} of its {{{{ $labels.mode }}}} steps are fine",
        f"On {WHERE},{RANK}: {PERCENT} of {{{{ $labels.mode }}}} steps are fine, while a peer that serves the same "
        f"model is fine in more than {number(limits.rank_fine * 100)} %. Ranks run in step: one slow rank slows all.",
        SERVER,
    )
