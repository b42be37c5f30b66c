"""*Fleet*: all servers, the worst first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dashboards.source.frame import ANY_IS_BAD, LOST, ON_OFF, SHARE, dashboard, filled, to_server
from dashboards.source.panels import Look, Panel, Query, named, number, rows, series, states
from dashboards.source.queries import FLEET, barrier, fine_share, lost_rate, lost_share, rate, select
from sglang_fence.mixin import wording

if TYPE_CHECKING:
    from grafana_foundation_sdk.builders import dashboard as build

_BY = "job, instance, model_name"
_SERVER = "{{instance}} {{model_name}}"
_SMALL = Look(span=4, height=4)
_FALLBACKS = rate("coarse_fallbacks_total", chosen=FLEET)


def fleet() -> build.Dashboard:
    """Return the dashboard."""
    text = "Are fences fine everywhere, why not, and what does it cost?"
    board = dashboard("SGLang fence / Fleet", wording.FLEET, text, ranks=False)
    return filled(board, {"At a glance": _glance(), "Where and why": _over_time(), "Servers": _servers()})


def _glance() -> list[Panel]:
    known = f"count(max by (job, instance) ({select('barrier_enabled', chosen=FLEET)}))"
    return [
        number("Servers", "Servers that tell of their fence.", [Query(known, "servers")], _SMALL),
        number(
            "Fine share",
            "Share of fenced steps, of all modes, that waited for their read-done event alone.",
            [Query(fine_share(chosen=FLEET), "fine")],
            _SMALL._replace(unit="percentunit", steps=SHARE, greatest=1),
        ),
        named(
            "Main reason",
            "The reason of most coarse steps, and how many a second. Expected reasons count as well.",
            [Query(f"topk(1, sum by (reason) ({_FALLBACKS}))", "{{reason}}")],
            _SMALL._replace(unit="ops"),
        ),
        number(
            "Lost seconds per second",
            "How much later forwards started than behind fine fences, of all servers together. The cost.",
            [Query(f"sum({lost_rate('lost_seconds_total', 'reason', FLEET)})", "lost")],
            _SMALL._replace(unit="s", steps=LOST),
        ),
        number(
            "Servers without barrier",
            "Servers whose schedule streams don't wait at all. Right only where there is one stream.",
            [Query(f"count({barrier(FLEET)} == 0) or on () vector(0)", "off")],
            _SMALL._replace(steps=ANY_IS_BAD),
        ),
        number(
            "Unsound steps",
            "Steps a second that let go before their reads had ended. Must be 0.",
            [Query(f"sum({rate('unsound_resolutions_total', chosen=FLEET)})", "unsound")],
            _SMALL._replace(unit="ops", steps=ANY_IS_BAD),
        ),
    ]


def _over_time() -> list[Panel]:
    return [
        series(
            "Fine share by server",
            "Share of fenced steps that were fine.",
            [Query(fine_share(_BY, FLEET), _SERVER)],
            Look("percentunit", greatest=1),
        ),
        series(
            "Coarse steps by reason",
            "Why steps waited for the whole forward. The set of reasons is closed, and each coarse step has one.",
            [Query(f"sum by (reason) ({_FALLBACKS})", "{{reason}}")],
            Look("ops"),
        ),
        series(
            "Lost seconds per second by reason",
            "What coarse fences cost. Known of timed steps, each of which stands for so many.",
            [Query(lost_rate("lost_seconds_total", "reason", FLEET), "{{reason}}")],
            Look("s"),
        ),
        series(
            "Lost share of forward time, worst servers",
            "Lost time over forward time, where it is greatest.",
            [Query(f"topk(10, {lost_share(_BY, FLEET)})", _SERVER)],
            Look("percentunit"),
        ),
        states(
            "Barrier by server",
            "Whether schedule streams wait for forwards at all.",
            [Query(barrier(FLEET), _SERVER)],
            Look(names=ON_OFF, steps=((None, "red"), (1, "green"))),
        ),
        series(
            "Steps by fence",
            "fine: waits for the reads alone; coarse: for the forward; disabled: for nothing; absent: no barrier here.",
            [Query(f"sum by (fence) ({rate('steps_total', chosen=FLEET)})", "{{fence}}")],
            Look("ops"),
        ),
    ]


def _servers() -> list[Panel]:
    coarse = f"sum by ({_BY}) ({_FALLBACKS})"
    lost = f"sum by ({_BY}) ({lost_rate('lost_seconds_total', f'{_BY}, reason', FLEET)})"
    return [
        rows(
            "Worst servers",
            "Those with the most coarse steps; follow one to its dashboard.",
            [
                Query(f"topk(20, {coarse})", "coarse steps"),
                Query(fine_share(_BY, FLEET), "fine share"),
                Query(lost, "lost s/s"),
                Query(lost_share(_BY, FLEET), "lost share"),
            ],
            {"instance": "instance", "job": "job", "model_name": "model"},
            Look(span=24, link=("Server", to_server("${__data.fields.instance}"))),
            {"coarse steps": "ops", "fine share": "percentunit", "lost s/s": "s", "lost share": "percentunit"},
        ),
        rows(
            "Versions and switches",
            "How many processes run with what. device_max_connections at 1 makes fine fences coarse in hardware.",
            [Query(f"count by ({', '.join(CONFIG)}) ({select('config_info', chosen=FLEET)})", "processes")],
            CONFIG,
            Look(span=24),
        ),
    ]


CONFIG = {
    "sglang": "SGLang",
    "version": "sglang-fence",
    "torch": "PyTorch",
    "device": "device",
    "backend": "backend",
    "algorithm": "algorithm",
    "device_max_connections": "max connections",
    "fence": "--fence",
    "enable_war_barrier": "enable barrier",
    "force_coarse_war_barrier": "force coarse",
    "enable_prefill_war_read_done": "prefill read done",
}
"""Labels of the metric of versions and switches, and how they are headed."""
