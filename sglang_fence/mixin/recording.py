"""Recording rules: ratios and percentiles of one server, and what alerts compare.

``without`` instead of ``by``: whatever else the scraper put on the series (cluster, namespace, pod) stays on them.
A *server* is what one target serves, all its ranks together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.catalogue import UNEXPECTED_REASONS
from sglang_fence.mixin.model import Recording

if TYPE_CHECKING:
    from sglang_fence.mixin.parameters import Parameters

RANK_LABELS = ("tp_rank", "pp_rank", "dp_rank")
"""What a server's processes are told apart by: labels that the plugin puts on all series."""
CONSTANT_LABELS = ("model_name", *RANK_LABELS)
"""Those that the plugin adds to the catalogue's."""

RANKS = ", ".join(RANK_LABELS)
FENCED = 'fence=~"fine|coarse"'
UNEXPECTED = "|".join(UNEXPECTED_REASONS)


def recording_rules(parameters: Parameters) -> list[Recording]:
    """Return the rules in an order in which each finds what it builds on."""
    w = parameters.window
    fallbacks = f"rate(sglang_fence_coarse_fallbacks_total[{w}])"
    unexpected = f'rate(sglang_fence_coarse_fallbacks_total{{reason=~"{UNEXPECTED}"}}[{w}])'
    return [
        # Of each rank.
        Recording(
            "sglang_fence:fenced_steps:rate",
            f"sum without (ends, fence) (rate(sglang_fence_steps_total{{{FENCED}}}[{w}]))",
        ),
        Recording(
            "sglang_fence:fine_steps:ratio",
            f"1 - sum without (backend, reason) ({fallbacks})\n"
            "  / (sum without (backend) (sglang_fence:fenced_steps:rate) > 0)",
        ),
        # Of each server.
        Recording(
            "sglang_fence:server_fenced_steps:rate",
            f"sum without ({RANKS}) (sglang_fence:fenced_steps:rate)",
        ),
        Recording(
            "sglang_fence:server_fallbacks:ratio",
            f"sum without ({RANKS}) ({fallbacks})\n"
            "  / ignoring (reason) group_left ()\n"
            "(sglang_fence:server_fenced_steps:rate > 0)",
        ),
        Recording(
            "sglang_fence:server_fine_steps:ratio",
            f"1 - sum without (backend, reason, {RANKS}) ({fallbacks})\n"
            "  / (sum without (backend) (sglang_fence:server_fenced_steps:rate) > 0)",
        ),
        Recording(
            "sglang_fence:server_unexpected_fallbacks:ratio",
            f"sum without (backend, reason, {RANKS}) ({unexpected})\n"
            "  / (sum without (backend) (sglang_fence:server_fenced_steps:rate) > 0)",
        ),
        Recording(
            "sglang_fence:server_unexplained:ratio",
            f'clamp_min(sum without (backend, ends, fence, {RANKS}) (rate(sglang_fence_steps_total{{fence="coarse"}}'
            f"[{w}]))\n"
            f"  - sum without (backend, reason, {RANKS}) ({fallbacks}), 0)\n"
            "  / (sum without (backend) (sglang_fence:server_fenced_steps:rate) > 0)",
        ),
        Recording(
            "sglang_fence:server_lost_seconds:rate",
            f"sum without (mode, {RANKS}) (rate(sglang_fence_lost_seconds_total[{w}]))",
        ),
        Recording(
            "sglang_fence:server_forward_seconds:rate",
            "sum without (mode) (\n"
            + forward_seconds(
                *(f"rate(sglang_fence_forward_seconds_{part}[{w}])" for part in ("sum", "count")),
                steps=f"rate(sglang_fence_steps_total[{w}])",
            )
            + "\n)",
        ),
        Recording(
            "sglang_fence:server_lost_forward:ratio",
            "sglang_fence:server_lost_seconds:rate\n"
            "  / ignoring (reason) group_left ()\n"
            "(sglang_fence:server_forward_seconds:rate > 0)",
        ),
        # By the wait, which each timed step has that is fenced. Few forwards are timed.
        Recording(
            "sglang_fence:server_timed_steps:rate",
            f"sum without (fence, {RANKS}) (rate(sglang_fence_wait_seconds_count[{w}]))",
        ),
        Recording("sglang_fence:server_slack_seconds:p50", _quantile(0.5, "slack", "", w)),
        Recording("sglang_fence:server_forward_seconds:p50", _quantile(0.5, "forward", "fence", w)),
        Recording("sglang_fence:server_wait_seconds:p99", _quantile(0.99, "wait", "fence", w)),
    ]


def forward_seconds(timed_sum: str, timed: str, *, steps: str) -> str:
    """Return the forward time of all steps, by mode: lost time stands for all steps, the histogram for few of them.

    A mode's mean, times its steps. A mode whose forwards weren't timed in the window has the mean of the others, or it
    would be left out of the whole, of which lost time is a share. So would a rank, where few steps are timed: means are
    those of all ranks together.

    Args:
        timed_sum: rate of the histogram's sum.
        timed: rate of its count.
        steps: rate of all steps.
    """
    of_mode, of_all = (
        f"sum without ({labels}, {RANKS}) ({timed_sum}) / (sum without ({labels}, {RANKS}) ({timed}) > 0)"
        for labels in ("fence", "mode, fence")
    )
    steps = f"sum without (backend, ends, fence, {RANKS}) ({steps})"
    return f"({of_mode}\n  or 0 * {steps}\n    + ignoring (mode) group_left () ({of_all}))\n  * {steps}"


def _quantile(q: float, duration: str, merged: str, window: str) -> str:
    without = f"{merged}, {RANKS}" if merged else RANKS
    return f"histogram_quantile({q}, sum without ({without}) (rate(sglang_fence_{duration}_seconds_bucket[{window}])))"
