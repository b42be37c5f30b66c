"""What makes each alert fire, as changes of a healthy server, and what it says of itself then."""

from __future__ import annotations

from dataclasses import dataclass

from dashboards.cases.server import P

Changes = dict[str, "float | None"]

_FINE = f'{P}steps_total{{mode="decode",backend="native",ends="in_replay",fence="fine"}}'
_COARSE = f'{P}steps_total{{mode="decode",backend="native",ends="unknown",fence="coarse"}}'


def _fallback(reason: str) -> str:
    return f'{P}coarse_fallbacks_total{{mode="decode",backend="native",reason="{reason}"}}'


@dataclass(frozen=True, slots=True)
class Bad:
    """One way for an alert to fire."""

    alert: str
    changes: Changes
    fires: tuple[str, ...]
    """Severities."""
    alone: bool
    """Whether one rank of eight is enough."""
    guarded: bool = True
    """Whether low traffic keeps it quiet."""
    what: str = ""


ALL_UNKNOWN: Changes = {_FINE: 0, _COARSE: 600, _fallback("backend_unknown"): 600}

BAD: tuple[Bad, ...] = (
    Bad("SGLangFenceUnknownFallbacks", ALL_UNKNOWN, ("critical", "warning"), alone=False),
    Bad(
        "SGLangFenceUnknownFallbacks",
        {_FINE: 420, _COARSE: 180, _fallback("backend_unknown"): 180},
        ("warning",),
        alone=False,
        what="a third of steps",
    ),
    Bad(
        "SGLangFenceUnexplainedFallbacks",
        {_FINE: 500, _COARSE: 100, _fallback("owner_silent"): 100},
        ("warning",),
        alone=True,
        what="owner_silent",
    ),
    Bad("SGLangFenceUnexplainedFallbacks", {_FINE: 500, _COARSE: 100}, ("warning",), alone=True, what="no reason"),
    Bad(
        "SGLangFenceLostTime",
        {
            _FINE: 0,
            _COARSE: 600,
            _fallback("backend_unknown"): 600,
            f'{P}forward_seconds_count{{mode="decode",fence="coarse"}}': 60,
            f'{P}forward_seconds_sum{{mode="decode",fence="coarse"}}': 0.09,
            f'{P}wait_seconds_count{{mode="decode",fence="fine"}}': 0,
            f'{P}wait_seconds_count{{mode="decode",fence="coarse"}}': 600,
            f'{P}lost_seconds_total{{mode="decode",reason="backend_unknown"}}': 0.09,
        },
        ("warning",),
        alone=False,
    ),
    Bad(
        "SGLangFenceNoSlack",
        {f'{P}slack_seconds_bucket{{mode="decode",ends="in_replay",le="0.000001"}}': 600},
        ("warning",),
        alone=False,
    ),
    Bad(
        "SGLangFenceLongWaits",
        {f'{P}wait_seconds_bucket{{mode="decode",fence="fine",le="0.000016"}}': 500},
        ("warning",),
        alone=True,
    ),
    Bad(
        "SGLangFenceBarrierDisabled",
        {f'{P}barrier_enabled{{why="asynchronous_device"}}': 0},
        ("critical",),
        alone=True,
        guarded=False,
    ),
    Bad(
        "SGLangFenceUnsoundResolution",
        {f'{P}unsound_resolutions_total{{backend="native",mode="decode"}}': 1},
        ("critical",),
        alone=True,
        guarded=False,
    ),
    Bad(
        "SGLangFenceAuditFailed",
        {
            f'{P}audit_result{{backend="native",mode="decode",declared="in_replay",verdict="sound"}}': 0,
            f'{P}audit_result{{backend="native",mode="decode",declared="in_replay",verdict="unsound"}}': 1,
        },
        ("critical",),
        alone=True,
        guarded=False,
    ),
    Bad(
        "SGLangFenceObserverBroken",
        {f'{P}observer_errors_total{{hook="step_finished"}}': 5},
        ("warning",),
        alone=True,
        guarded=False,
        what="errors",
    ),
    Bad(
        "SGLangFenceObserverBroken",
        {
            f'{P}device_timing_enabled{{why="timing_events"}}': 0,
            f'{P}device_timing_enabled{{why="failed"}}': 0,
        },
        ("warning",),
        alone=False,
        guarded=False,
        what="timing given up",
    ),
    Bad(
        "SGLangFenceObserverBroken",
        {f'{P}observer_unresolved_total{{cause="in_flight"}}': 900},
        ("warning",),
        alone=False,
        guarded=False,
        what="nothing read",
    ),
    Bad(
        "SGLangFenceObserverSilent",
        {f'{P}wait_seconds_count{{mode="decode",fence="fine"}}': 0},
        ("warning",),
        alone=True,
        what="no device times",
    ),
    Bad(
        "SGLangFenceHookMissing",
        {
            f'{P}plugin_hook{{target="Scheduler.run_batch",state="installed"}}': 0,
            f'{P}plugin_hook{{target="Scheduler.run_batch",state="signature"}}': 1,
        },
        ("warning",),
        alone=True,
        guarded=False,
    ),
)
