"""What the observer says of itself: its cost, its errors, what it lost."""

from __future__ import annotations

from dashboards.source.frame import ANY_IS_BAD, ON_OFF
from dashboards.source.panels import Look, Panel, Query, number, rows, series, states
from dashboards.source.queries import rate, select

NOT_INSTALLED = 'state!="installed"'

_SMALL = Look(span=6, height=5)


def observer() -> list[Panel]:
    """Return the panels."""
    hooks = f"sum by (target, state) ({select('plugin_hook')}) > 0"
    timing = f"max by (job, instance) ({select('device_timing_enabled')})"
    return [
        states(
            "Device times",
            "Whether durations and lost time are taken at all. Off: counts and reasons alone.",
            [Query(timing, "{{instance}}")],
            _SMALL._replace(names=ON_OFF, steps=((None, "red"), (1, "green"))),
        ),
        number(
            "Timed steps",
            "Device times are taken on each so-many-th step.",
            [Query(f"max({select('observer_timing_every')})", "each")],
            _SMALL,
        ),
        number(
            "Clock error",
            "How far device times may be off against the wall clock.",
            [Query(f"max({select('observer_clock_error_seconds')})", "at most")],
            _SMALL._replace(unit="s"),
        ),
        number(
            "Hooks that aren't installed",
            "Functions of SGLang that the plugin doesn't see. Servers without the plugin have none.",
            [Query(f"sum({select('plugin_hook', NOT_INSTALLED)}) or on () vector(0)", "missing")],
            _SMALL._replace(steps=ANY_IS_BAD),
        ),
        series(
            "Cost on the serving thread",
            "Host seconds a second that observing takes, by hook.",
            [Query(f"sum by (hook) ({rate('observer_cost_seconds_total')})", "{{hook}}")],
            Look("s"),
        ),
        series(
            "Errors",
            "What observers raised, by hook. Who keeps raising is dropped, and steps go on.",
            [Query(f"sum by (hook) ({rate('observer_errors_total')})", "{{hook}}")],
            Look("ops"),
        ),
        series(
            "Steps that were lost to observation",
            "Due and not observed, timed and never read, or turned away by an exporter's full queue.",
            [
                Query(
                    f"sum by (cause) ({rate('observer_dropped_steps_total')}) or on () vector(0)", "dropped {{cause}}"
                ),
                Query(
                    f"sum by (cause) ({rate('observer_unresolved_total')}) or on () vector(0)", "unresolved {{cause}}"
                ),
                Query(
                    f"sum by (exporter) ({rate('exporter_dropped_steps_total')}) or on () vector(0)",
                    "queue {{exporter}}",
                ),
            ],
            Look("ops"),
        ),
        series(
            "Clamped durations",
            "Durations that came out below zero after calibration, and count as zero.",
            [Query(f"sum by (duration) ({rate('observer_clamps_total')})", "{{duration}}")],
            Look("ops"),
        ),
        series(
            "Calibration",
            "Offsets that were measured at start and are subtracted.",
            [Query(f"max by (offset) ({select('observer_calibration_seconds')})", "{{offset}}")],
            Look("s"),
        ),
        rows(
            "Hooks",
            "What became of each function of SGLang that the plugin hooks.",
            [Query(f"{hooks} or on () vector(0)", "processes")],
            {"target": "function", "state": "state"},
        ),
    ]
