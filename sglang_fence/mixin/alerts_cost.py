"""Alerts on device times: what coarse fences cost, and fine ones that bring nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.mixin.alerts_fallbacks import PAGED_MODES
from sglang_fence.mixin.model import Alert, Severity
from sglang_fence.mixin.wording import DURATION, PERCENT, SERVER, WHERE, enough, number

if TYPE_CHECKING:
    from sglang_fence.mixin.parameters import Parameters

_WORST = (
    '{{ range query (printf "topk(1, sglang_fence:server_lost_forward:ratio{job=%q,instance=%q})" $labels.job'
    " $labels.instance) }} Most of it: {{ .Labels.reason }}, {{ .Value | humanizePercentage }}.{{ end }}"
)


def cost_alerts(parameters: Parameters) -> list[Alert]:
    """Return lost time, slack about zero, and waits that are too long."""
    return [_lost(parameters), _no_slack(parameters), _wait(parameters)]


def _timed(parameters: Parameters, rate: str = "sglang_fence:server_timed_steps:rate") -> str:
    return enough(parameters.window_s, parameters.thresholds.min_timed_steps, rate)


def _lost(parameters: Parameters) -> Alert:
    share = number(parameters.thresholds.lost)
    return Alert(
        "SGLangFenceLostTime",
        Severity.WARNING,
        f"sum without (reason) (sglang_fence:server_lost_forward:ratio) > {share}\n"
        f"and\n  {_timed(parameters, 'sum without (mode) (sglang_fence:server_timed_steps:rate)')}",
        parameters.hold,
        f"Coarse fences cost {PERCENT} of forward time",
        f"On {WHERE}, forwards started later than behind fine fences by {PERCENT} of forward time over the last "
        f"{parameters.window}.{_WORST} Reasons that were asked for count as well: forced coarse costs the same.",
        SERVER,
    )


def _no_slack(parameters: Parameters) -> Alert:
    limits = parameters.thresholds
    return Alert(
        "SGLangFenceNoSlack",
        Severity.WARNING,
        f'sglang_fence:server_slack_seconds:p50{{ends=~"pre_replay|in_replay"}} < {number(limits.slack_seconds)}\n'
        f"and ignoring (ends)\n  sglang_fence:server_forward_seconds:p50 > {number(limits.slack_forward_seconds)}\n"
        f"and ignoring (ends)\n  sglang_fence:server_fine_steps:ratio > {number(limits.rank_fine)}\n"
        f"and ignoring (ends)\n  {_timed(parameters)}",
        parameters.hold,
        "Fine {{ $labels.mode }} steps bring no slack: they are serialised in hardware",
        f"On {WHERE}, the median slack of {{{{ $labels.mode }}}} steps that end {{{{ $labels.ends }}}} is {DURATION}: "
        "their fences are fine, and the streams wait for one another all the same. Look at CUDA_DEVICE_MAX_CONNECTIONS "
        "(1 does this), and at what else shares the hardware queue.",
        SERVER,
    )


def _wait(parameters: Parameters) -> Alert:
    factor = number(parameters.thresholds.wait_factor)
    return Alert(
        "SGLangFenceLongWaits",
        Severity.WARNING,
        # An extend behind a coarse fence waits as long as its own forward, and that is as long as its prompts are.
        f'sglang_fence:server_wait_seconds:p99{{mode=~"{"|".join(PAGED_MODES)}"}}\n'
        f"  > {factor} * sglang_fence:server_forward_seconds:p50\n"
        f"and\n  {_timed(parameters)}",
        parameters.hold,
        f"The schedule stream waits {DURATION} (p99) for {{{{ $labels.mode }}}} steps",
        f"On {WHERE}, one in a hundred {{{{ $labels.mode }}}} steps holds the schedule stream back for {DURATION} or "
        f"more: over {factor} times the median forward. Something else runs in front of the fence.",
        SERVER,
    )
