"""Queries that several panels share. ``$`` names are Grafana's variables."""

from __future__ import annotations

from sglang_fence.mixin.recording import FENCED, RANKS, forward_seconds

FLEET = 'job=~"$job", instance=~"$instance", model_name=~"$model"'
"""Servers that were chosen. A series without the label has the empty one, which "All" matches."""
SERVER = f'{FLEET}, tp_rank=~"$rank"'
"""Ranks of the server that was chosen."""


def select(metric: str, matchers: str = "", chosen: str = SERVER) -> str:
    """Return the series of ``metric``, without its prefix, that were chosen."""
    return f"sglang_fence_{metric}{{{', '.join(part for part in (chosen, matchers) if part)}}}"


def rate(metric: str, matchers: str = "", chosen: str = SERVER) -> str:
    """Return its increase a second."""
    return f"rate({select(metric, matchers, chosen)}[$__rate_interval])"


def fine_share(by: str = "", chosen: str = SERVER) -> str:
    """Return the share of fenced steps that were fine."""
    group = f" by ({by})" if by else ""
    coarse = f"sum{group} ({rate('coarse_fallbacks_total', chosen=chosen)})"
    return f"1 - {coarse} / (sum{group} ({rate('steps_total', FENCED, chosen)}) > 0)"


def lost_rate(metric: str, by: str, chosen: str = SERVER) -> str:
    """Return seconds a second, of all steps: each that was timed stands for so many."""
    return f"sum by ({by}) ({rate(metric, chosen=chosen)})"


def lost_share(by: str, chosen: str = SERVER) -> str:
    """Return lost time as a share of forward time."""
    timed = (rate(f"forward_seconds_{part}", chosen=chosen) for part in ("sum", "count"))
    forward = f"sum by ({by}) ({forward_seconds(*timed, steps=rate('steps_total', chosen=chosen))})"
    return f"{lost_rate('lost_seconds_total', by, chosen)} / ({forward} > 0)"


def quantile(q: float, metric: str, by: str) -> str:
    """Return a quantile of a histogram of durations."""
    return f"histogram_quantile({q}, sum by (le, {by}) ({rate(f'{metric}_bucket')}))"


def barrier(chosen: str = SERVER) -> str:
    """Return whether the barrier is on, by server. A gauge that is no longer told stays at 0."""
    everywhere = select("barrier_enabled", chosen=chosen)
    return f"min without ({RANKS}) (max without (why) ({everywhere}))"
