"""Pieces of expressions and texts that several alerts share."""

from __future__ import annotations

from sglang_fence.mixin.recording import RANKS

FLEET = "sglang-fence-fleet"
SERVER = "sglang-fence-server"
DECLARATIONS = "sglang-fence-declarations"
"""Uids of the dashboards."""

WHERE = "{{ $labels.instance }} ({{ $labels.job }}{{ with $labels.model_name }}, {{ . }}{{ end }})"
RANK = (
    "{{ with $labels.tp_rank }} tp_rank {{ . }}{{ end }}{{ with $labels.pp_rank }} pp_rank {{ . }}{{ end }}"
    "{{ with $labels.dp_rank }} dp_rank {{ . }}{{ end }}"
)
PERCENT = "{{ $value | humanizePercentage }}"
DURATION = "{{ $value | humanizeDuration }}"


def number(value: float) -> str:
    """Return ``value`` as PromQL and people write it."""
    return f"{value:g}" if value >= 0.0001 or value == 0 else f"{value:f}".rstrip("0")  # noqa: PLR2004 - as %g does


def enough(window_s: float, least: float, rate: str) -> str:
    """Return the guard against low traffic: at least so many steps in the window."""
    return f"{rate} * {number(window_s)} >= {number(least)}"


def of_server(gauge: str, *labels: str) -> str:
    """Return the greatest over a server's ranks, without ``labels`` too."""
    return f"max without ({', '.join((*labels, RANKS))}) ({gauge})"
