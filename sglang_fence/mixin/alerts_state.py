"""Alerts on what isn't a share of steps: the barrier, soundness, and the observer itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.mixin.model import Alert, Severity
from sglang_fence.mixin.recording import FENCED, RANKS
from sglang_fence.mixin.wording import DECLARATIONS, SERVER, WHERE, enough, number, of_server

if TYPE_CHECKING:
    from sglang_fence.mixin.parameters import Parameters

FENCED_LOOPS = "overlap|disaggregated"
"""Loops that apply the barrier. The others have none, and no need of one, or not yet."""

_EVERY = "(sglang_fence_observer_timing_every > 0)"
"""At 0 only traced steps are timed, which may be none."""


def state_alerts(parameters: Parameters) -> list[Alert]:
    """Return all of them."""
    return [
        _barrier(parameters),
        _unsound(parameters),
        _audit(),
        _observer_broken(parameters),
        _observer_silent(parameters),
        _hook(parameters),
    ]


def _barrier(parameters: Parameters) -> Alert:
    # In multiprocess mode a gauge that is no longer told stays at 0, so that the greatest counts.
    return Alert(
        "SGLangFenceBarrierDisabled",
        Severity.CRITICAL,
        "max without (why) (sglang_fence_barrier_enabled) == 0\n"
        'unless\n  max without (why) (sglang_fence_barrier_enabled{why="synchronous_device"})\n'
        f'and\n  max without (loop) (sglang_fence_loop_info{{loop=~"{FENCED_LOOPS}"}}) == 1',
        parameters.hold_critical,
        "The write-after-read barrier is off where it should be on",
        f"On {WHERE}, an overlapped loop runs without the barrier: the schedule stream overwrites buffers that "
        "forwards still read. Tokens may be wrong, without an error.",
        SERVER,
    )


def _unsound(parameters: Parameters) -> Alert:
    return Alert(
        "SGLangFenceUnsoundResolution",
        Severity.CRITICAL,
        f"sum without ({RANKS}) (increase(sglang_fence_unsound_resolutions_total[{parameters.window}])) > 0",
        "",
        "{{ $labels.mode }} steps resolve to an earlier end than {{ $labels.backend }} declares",
        f"On {WHERE}, {{{{ $value | humanize }}}} {{{{ $labels.mode }}}} steps of backend {{{{ $labels.backend }}}} in "
        f"the last {parameters.window} let the schedule stream go before their reads had ended. Shared buffers may "
        "have been overwritten while being read: tokens may be wrong.",
        DECLARATIONS,
    )


def _audit() -> Alert:
    failed = of_server('sglang_fence_audit_result{verdict="unsound"}')
    return Alert(
        "SGLangFenceAuditFailed",
        Severity.CRITICAL,
        f"{failed} == 1",
        "",
        "The audit found {{ $labels.backend }} unsound for {{ $labels.mode }}",
        f"On {WHERE}, the newest audit found that backend {{{{ $labels.backend }}}} reads shared buffers after the end "
        "that it declares for {{ $labels.mode }} ({{ $labels.declared }}). Tokens may be wrong until it declares a "
        "later one.",
        DECLARATIONS,
    )


def _observer_broken(parameters: Parameters) -> Alert:
    window, limit = parameters.window, parameters.thresholds.observer_lost
    lost = f"sum without (cause, {RANKS}) (rate(sglang_fence_observer_unresolved_total[{window}]))"
    # Steps that no fence stands behind have no wait: each so-many-th of them is timed.
    unfenced = (
        f"sum without (mode, backend, ends, fence, {RANKS}) (\n"
        f"      rate(sglang_fence_steps_total{{{FENCED.replace('=~', '!~')}}}[{window}])\n"
        f"        / ignoring (mode, backend, ends, fence) group_left () {_EVERY}\n    )"
    )
    failed = of_server('sglang_fence_device_timing_enabled{why="failed"}', "why")
    return Alert(
        "SGLangFenceObserverBroken",
        Severity.WARNING,
        f"sum without (hook, {RANKS}) (increase(sglang_fence_observer_errors_total[{window}])) > 0\n"
        f"or\n  {failed} + 1\n"
        f"  and\n    {of_server('sglang_fence_device_timing_enabled', 'why')} == 0\n"
        f"or\n  {lost}\n    / ({lost} + sum without (mode) (sglang_fence:server_timed_steps:rate)) > {number(limit)}\n"
        f"  unless\n    {lost}\n    / {unfenced} <= {number(limit)}",
        parameters.hold,
        "The fence's observer is broken: what the dashboards show isn't all",
        f"On {WHERE}, observers raise, device times were given up, or more than {number(100 * limit)} % of timed "
        "steps are never read. Serving goes on, and counts of steps stay right; device times do not.",
        SERVER,
    )


def _observer_silent(parameters: Parameters) -> Alert:
    timed = enough(
        parameters.window_s,
        parameters.thresholds.min_timed_steps,
        f"sum without (mode, backend) (sglang_fence:fenced_steps:rate) / {_EVERY}",
    )
    here = "max by (job, instance) ({})"
    known = here.format(f"max_over_time(sglang_fence_barrier_enabled[{parameters.day}])")
    return Alert(
        "SGLangFenceObserverSilent",
        Severity.WARNING,
        f"{here.format('up')} == 1\n"
        f"and\n  {known} >= 0\n"
        f"unless\n  {here.format('sglang_fence_barrier_enabled')}\n"
        f"or\n  {timed}\n"
        "  and\n    max without (why) (sglang_fence_device_timing_enabled) == 1\n"
        "  unless\n    sum without (mode, fence) "
        f"(rate(sglang_fence_wait_seconds_count[{parameters.window}])) > 0",
        parameters.hold,
        "The fence's observer is silent",
        f"On {WHERE}, the target answers and its fence metrics are gone, or steps are counted and no device times come "
        "of them. Fallbacks can't be seen there.",
        SERVER,
    )


def _hook(parameters: Parameters) -> Alert:
    missing = of_server('sglang_fence_plugin_hook{state!="installed"}')
    return Alert(
        "SGLangFenceHookMissing",
        Severity.WARNING,
        f"{missing} == 1",
        parameters.hold,
        "{{ $labels.target }} isn't hooked: {{ $labels.state }}",
        f"On {WHERE}, the plugin doesn't see {{{{ $labels.target }}}} of SGLang ({{{{ $labels.state }}}}). Numbers "
        "that come from it are missing, so that fallbacks may go unseen.",
        SERVER,
    )
