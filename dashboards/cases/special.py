"""Cases that aren't one healthy server with a change: ranks against one another, today against yesterday, EAGLE."""

from __future__ import annotations

from dashboards.cases.bad import ALL_UNKNOWN
from dashboards.cases.case import Case
from dashboards.cases.server import GAUGES, P, Server

NO_FORWARD: dict[str, float | None] = {
    f'{P}forward_seconds_{part}{{mode="decode",fence="fine"}}': 0 for part in ("count", "sum")
}
NO_WAIT: dict[str, float | None] = {f'{P}wait_seconds_count{{mode="decode",fence="fine"}}': 0}
_DAY = 1_500
"""Minutes; a day and an hour."""


def special_cases() -> list[Case]:
    """Return them all."""
    return [*_rank(), *_risen(), *_silent(), *_lost(), *_waits(), *_broken(), *_modes(), *_barrier()]


def _rank() -> list[Case]:
    name = "SGLangFenceRankCoarse"
    seven = [Server(rank=rank) for rank in range(1, 8)]
    odd = Server(rank=0).but(ALL_UNKNOWN)
    fires = ({"severity": "warning", "mode": "decode", "tp_rank": "0"},)
    quiet = odd.scaled(1 / 300)
    brief = [Server(rank=rank).gapped(ALL_UNKNOWN if rank == 0 else {}) for rank in range(2)]
    return [
        Case(name, "one rank of eight is coarse", _merged(*(s.steady() for s in (odd, *seven))), fires),
        Case(
            name,
            "a replica is coarse, another fine",
            _merged(odd.steady(), Server(instance="b:30000").steady()),
            fires,
        ),
        Case(name, "all ranks are coarse", _merged(*(Server(rank=r).but(ALL_UNKNOWN).steady() for r in range(8)))),
        Case(name, "low traffic", _merged(quiet.steady(), *(s.steady() for s in seven))),
        Case(name, "a counter reset by a restart", _merged(Server().restarted(ALL_UNKNOWN))),
        Case(name, "a gap in scraping", _merged(*brief)),
        Case(
            name,
            "a new server with no history",
            _merged(Server().newcomer(ALL_UNKNOWN), *(s.steady() for s in seven)),
        ),
    ]


def _risen() -> list[Case]:
    name = "SGLangFenceFallbacksRisen"
    steps = f'{P}steps_total{{mode="decode",backend="native",ends="in_replay",fence="fine"}}'
    fallbacks = f'{P}coarse_fallbacks_total{{mode="decode",backend="native",reason="backend_unknown"}}'

    def history(before: str, after: str, traffic: float = 600, ranks: int = 1) -> dict[str, str]:
        """Fallbacks until an hour ago, and since; steps all along."""
        merged: dict[str, str] = {}
        for rank in range(ranks):
            where = f'job="sglang",instance="a:30000",model_name="m",tp_rank="{rank}",'
            merged[steps.replace("{", f"{{{where}")] = f"0+{traffic:g}x{_DAY}"
            odd = rank == 0
            line = f"{before} {after}" if odd else f"0x{_DAY}"
            merged[fallbacks.replace("{", f"{{{where}")] = line
        return merged

    start, reached = _DAY - 60, 600 * (_DAY - 60)
    none, many = f"0x{start}", "0+300x60"
    fires = ({"severity": "warning", "mode": "decode"},)
    at = f"{_DAY - 1}m"
    gap = f"0+300x3 _x6 900x{60 - 10}"
    fresh = {series: f"_x{start} {'5000+600x60' if 'steps' in series else many}" for series in history("", "")}
    return [
        Case(name, "half of the steps since an hour ago", history(none, many), fires, at),
        Case(name, "as many as the day before", history(f"0+300x{start}", f"{reached // 2}+300x60"), at=at),
        Case(name, "low traffic", history(none, "0+2x60", traffic=4), at=at),
        Case(name, "a counter reset by a restart", history(f"0+1x{start}", "0+1x60"), at=at),
        Case(name, "one rank of eight", history(none, "0+600x60", ranks=8), at=at),
        Case(name, "a gap in scraping", history(none, gap), at=at),
        Case(name, "a new server with no history", fresh, at=at),
    ]


def _silent() -> list[Case]:
    name = "SGLangFenceObserverSilent"
    gone = {
        series: line if series.startswith("up{") else f"{line.rpartition('x')[0]}x10 stale"
        for series, line in Server().steady().items()
    }
    bare = {'up{job="sglang",instance="c:30000"}': "1x60"}
    gauges = dict.fromkeys(GAUGES)
    off = Server().but(
        {**gauges, f'{P}device_timing_enabled{{why="switch"}}': 0, f'{P}barrier_enabled{{why="flag"}}': 1}
    )
    return [
        Case(name, "the target answers, its metrics are gone", gone, ({"severity": "warning"},)),
        Case(name, "a target that never had the plugin", bare),
        Case(name, "device times are switched off", off.steady()),
        Case(name, "no forward was timed, which few are", Server().but(NO_FORWARD).steady()),
        Case(
            name,
            "coarse steps alone are traced, and there are none",
            Server().but(NO_WAIT | {f"{P}observer_timing_every{{}}": 0}).steady(),
        ),
    ]


def _lost() -> list[Case]:
    """Where only extends had their forwards timed: they are long and coarse, and most of the time goes into decodes."""
    name, extend = "SGLangFenceLostTime", 'mode="extend"'
    extends: dict[str, float | None] = {
        f'{P}forward_seconds_count{{{extend},fence="coarse"}}': 60,
        f'{P}forward_seconds_sum{{{extend},fence="coarse"}}': 0.3,
        f'{P}wait_seconds_count{{{extend},fence="coarse"}}': 60,
        f'{P}lost_seconds_total{{{extend},reason="backend_unknown"}}': 0.015,
    }
    decodes_too: dict[str, float | None] = {
        f'{P}lost_seconds_total{{mode="decode",reason="backend_unknown"}}': 0.3,
    }
    fires = ({"severity": "warning"},)
    return [
        Case(name, "no decode's forward was timed", Server().but(NO_FORWARD | extends).steady()),
        Case(
            name,
            "no decode's forward was timed, and it is so",
            Server().but(NO_FORWARD | extends | decodes_too).steady(),
            fires,
        ),
        Case(name, "on two ranks of eight a coarse step was timed, and the forward behind it", _few_timed()),
    ]


def _few_timed() -> dict[str, str]:
    """Each 101st step is timed, and few there are; 0.3 ms of each coarse extend are lost, 2 % of all at the most."""
    extend = 'mode="extend"'
    few = NO_FORWARD | {f"{P}observer_timing_every{{}}": 101}
    ranks = [Server(rank=rank).scaled(0.1).but(few) for rank in range(8)]
    for rank in (0, 5):
        ranks[rank] = ranks[rank].but(
            {
                f'{P}forward_seconds_count{{mode="decode",fence="fine"}}': 0.2,
                f'{P}forward_seconds_sum{{mode="decode",fence="fine"}}': 0.0003,
                f'{P}wait_seconds_count{{{extend},fence="coarse"}}': 0.2,
                f'{P}lost_seconds_total{{{extend},reason="backend_unknown"}}': 0.2 * 101 * 0.0003,
            }
        )
    return _merged(*(one.steady() for one in ranks))


def _waits() -> list[Case]:
    """Behind a coarse fence a wait is as long as its forward."""
    name = "SGLangFenceLongWaits"
    decodes = {"0.002048": 0, "0.004096": 330, "0.008192": 600, "+Inf": 600}
    extends = {"0.032768": 0, "0.065536": 40, "0.262144": 55, "0.524288": 60, "+Inf": 60}
    return [
        Case(name, "decodes of 3.6 to 4.6 ms, across the edge of a bucket", _as_long(decodes, "decode", "in_replay")),
        Case(name, "extends of short prompts and of long ones", _as_long(extends, "extend", "unknown")),
    ]


def _as_long(buckets: dict[str, int], mode: str, ends: str) -> dict[str, str]:
    at = f'mode="{mode}",fence="coarse"'
    every = buckets["+Inf"]
    changes: dict[str, float | None] = {
        f'{P}steps_total{{mode="{mode}",backend="native",ends="{ends}",fence="coarse"}}': every,
        f"{P}wait_seconds_count{{{at}}}": every,
    }
    for le, steps in buckets.items():
        changes[f'{P}wait_seconds_bucket{{{at},le="{le}"}}'] = steps
        changes[f'{P}forward_seconds_bucket{{{at},le="{le}"}}'] = steps / 500
    healthy = dict.fromkeys(name for name in Server().numbers() if "_bucket" in name and 'mode="decode"' in name)
    return Server().but((healthy if mode == "decode" else {}) | changes).steady()


def _broken() -> list[Case]:
    """Steps that no fence stands behind have no wait."""
    name = "SGLangFenceObserverBroken"
    fine = f'{P}steps_total{{mode="decode",backend="native",ends="in_replay",fence="fine"}}'
    normal: dict[str, float | None] = {fine: 0, fine.replace("fine", "absent"): 600}
    fires = ({"severity": "warning"},)

    def unread(steps: float) -> dict[str, float | None]:
        return NO_WAIT | normal | {f'{P}observer_unresolved_total{{cause="failed"}}': steps}

    return [
        Case(name, "a loop without a fence, one step in 600 isn't read", Server().but(unread(1)).steady()),
        Case(name, "a loop without a fence, nothing is read", Server().but(unread(580)).steady(), fires),
    ]


def _modes() -> list[Case]:
    name = "SGLangFenceUnknownFallbacks"

    def in_mode(mode: str) -> Server:
        return Server().but(
            {
                f'{P}steps_total{{mode="{mode}",backend="triton",ends="unknown",fence="coarse"}}': 600,
                f'{P}coarse_fallbacks_total{{mode="{mode}",backend="triton",reason="backend_unknown"}}': 600,
                f'{P}publications_total{{mode="target_verify",runner="target",backend="triton",ends="in_replay"}}': 600,
                f'{P}publications_total{{mode="draft_extend",runner="draft",backend="triton",ends="unknown"}}': 600,
            }
        )

    def both(mode: str) -> tuple[dict[str, str], ...]:
        return tuple({"severity": severity, "mode": mode} for severity in ("critical", "warning"))

    expected = "forced"
    forced: dict[str, float | None] = {
        series.replace("backend_unknown", expected): value for series, value in ALL_UNKNOWN.items()
    }
    return [
        Case(name, "EAGLE on 0.5.23: every round coarse", in_mode("target_verify").steady(), both("target_verify")),
        Case(name, "draft-extend", in_mode("draft_extend").steady(), both("draft_extend")),
        Case(name, "extend alone pages nobody", in_mode("extend").steady()),
        Case(name, "mixed alone pages nobody", in_mode("mixed").steady()),
        Case(name, "an expected reason: forced", Server().but(forced).steady()),
    ]


def _barrier() -> list[Case]:
    name = "SGLangFenceBarrierDisabled"
    on = f'{P}barrier_enabled{{why="asynchronous_device"}}'
    loop = f'{P}loop_info{{loop="overlap"}}'
    synchronous = Server().but({on: None, f'{P}barrier_enabled{{why="synchronous_device"}}': 0})
    normal = Server().but({on: 0, loop: None, f'{P}loop_info{{loop="normal"}}': 1})
    told_again = Server().but({f'{P}barrier_enabled{{why="switch"}}': 0})
    return [
        Case(name, "a device with one stream needs none", synchronous.steady()),
        Case(name, "a loop without overlap needs none", normal.steady()),
        Case(name, "a gauge that is no longer told stays at 0", told_again.steady()),
    ]


def _merged(*parts: dict[str, str]) -> dict[str, str]:
    merged: dict[str, str] = {}
    for part in parts:
        merged.update(part)
    return merged
