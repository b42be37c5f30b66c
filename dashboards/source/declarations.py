"""*Declarations*: what backends say of their reads, whether it holds, and what the runtime makes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dashboards.source.fleet import CONFIG
from dashboards.source.frame import ANY_IS_BAD, dashboard, filled
from dashboards.source.panels import Look, Panel, Query, number, rows, series
from dashboards.source.queries import rate, select
from sglang_fence.mixin import wording

if TYPE_CHECKING:
    from grafana_foundation_sdk.builders import dashboard as build

FAILED = 'verdict="unsound"'
UNKNOWN = 'reason="backend_unknown"'

_SMALL = Look(span=6, height=4)


def declarations() -> build.Dashboard:
    """Return the dashboard."""
    text = "What does each backend declare, does it hold, and what did graphs make of it?"
    board = dashboard("SGLang fence / Declarations", wording.DECLARATIONS, text, ranks=True)
    return filled(board, {"Soundness": _soundness(), "Declared and resolved": _declared(), "Set-up": _set_up()})


def _soundness() -> list[Panel]:
    unknown = select("declaration_info", 'declared="unknown"')
    return [
        number(
            "Unsound steps",
            "Steps a second that resolved to an earlier end than declared. Must be 0.",
            [Query(f"sum({rate('unsound_resolutions_total')})", "unsound")],
            _SMALL._replace(unit="ops", steps=ANY_IS_BAD),
        ),
        number(
            "Failed audits",
            "Declarations that the newest audit found unsound.",
            [Query(f"count({select('audit_result', FAILED)} == 1) or on () vector(0)", "failed")],
            _SMALL._replace(steps=ANY_IS_BAD),
        ),
        number(
            "Audited declarations",
            "Declarations of which an audit says anything.",
            [
                Query(
                    f"count(max by (backend, mode, declared) ({select('audit_result')})) or on () vector(0)", "audited"
                )
            ],
            _SMALL,
        ),
        number(
            "Declared UNKNOWN",
            "Backends and modes that nobody has audited. Extend and mixed are, in stock backends.",
            [Query(f"count(max by (backend, mode) ({unknown})) or on () vector(0)", "unknown")],
            _SMALL,
        ),
        rows(
            "Audit results",
            "Verdicts of the newest audit. could_be_earlier: the fence lets go later than it has to.",
            [
                Query(
                    f"max by (backend, mode, declared, verdict) ({select('audit_result')} == 1) or on () vector(0)",
                    "",
                )
            ],
            {"backend": "backend", "mode": "mode", "declared": "declared", "verdict": "verdict"},
        ),
        series(
            "Unsound resolutions",
            "Shared buffers may have been overwritten while being read: tokens may be wrong.",
            [Query(f"sum by (backend, mode) ({rate('unsound_resolutions_total')})", "{{mode}} {{backend}}")],
            Look("ops"),
        ),
    ]


def _declared() -> list[Panel]:
    return [
        rows(
            "What each backend declares",
            "Where shared reads end, by mode, and in how many processes. UNKNOWN makes a step coarse.",
            [Query(f"sum by (backend, mode, declared) ({select('declaration_info')})", "processes")],
            {"backend": "backend", "mode": "mode", "declared": "declared"},
        ),
        series(
            "What steps resolved to",
            "Where reads ended in the graphs that were replayed: never earlier than declared.",
            [Query(f"sum by (backend, mode, ends) ({rate('steps_total')})", "{{mode}} {{backend}} {{ends}}")],
            Look("ops"),
        ),
        series(
            "Downgrades",
            "Steps whose reads end later than declared, and why.",
            [Query(f"sum by (backend, mode, cause) ({rate('downgrades_total')})", "{{mode}} {{backend}} {{cause}}")],
            Look("ops"),
        ),
        series(
            "Steps that fell back as UNKNOWN",
            "By mode and backend: what an audit would turn fine.",
            [
                Query(
                    f"sum by (backend, mode) ({rate('coarse_fallbacks_total', UNKNOWN)})",
                    "{{mode}} {{backend}}",
                )
            ],
            Look("ops"),
        ),
    ]


def _set_up() -> list[Panel]:
    return [
        rows(
            "Barrier",
            "Whether it is on, and what decided that.",
            [Query(f"max by (job, instance, why) ({select('barrier_enabled')})", "on")],
            {"job": "job", "instance": "instance", "why": "decided by"},
        ),
        rows(
            "Loop",
            "The scheduler's loop. Only overlap and disaggregated apply the barrier.",
            [Query(f"max by (job, instance, loop) ({select('loop_info')} == 1)", "")],
            {"job": "job", "instance": "instance", "loop": "loop"},
        ),
        rows(
            "Versions and switches",
            "By server.",
            [Query(f"max by (job, instance, {', '.join(CONFIG)}) ({select('config_info')} == 1)", "")],
            {"job": "job", "instance": "instance", **CONFIG},
            Look(span=24),
        ),
    ]
