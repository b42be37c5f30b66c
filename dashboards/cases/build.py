"""All cases, and the files of promtool tests that they come to: one an alert."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import replace

from dashboards.cases.bad import BAD, Bad
from dashboards.cases.case import Case
from dashboards.cases.server import Server
from dashboards.cases.special import special_cases
from sglang_fence.mixin.parameters import Parameters
from sglang_fence.mixin.recording import recording_rules
from sglang_fence.mixin.rules import alerts

_QUIET = 1 / 300
"""Two steps a minute, ten in a window."""


def cases() -> list[Case]:
    """Return every case."""
    return [case for bad in BAD for case in _of(bad)] + special_cases()


def files() -> dict[str, str]:
    """Return promtool's files by name."""
    by_alert: defaultdict[str, list[Case]] = defaultdict(list)
    for case in cases():
        by_alert[case.alert].append(case)
    return {f"{alert}.yaml": _file(alert, found) for alert, found in by_alert.items()}


def _of(bad: Bad) -> list[Case]:
    what = f", {bad.what}" if bad.what else ""
    mode: dict[str, str] = {} if bad.alert in _WITHOUT_MODE else {"mode": "decode"}
    labels = tuple({"severity": severity, **mode} for severity in bad.fires)
    ranked = (
        tuple(one | {"tp_rank": "0"} for one in labels) if bad.alert in _BY_RANK or bad.what in _BY_RANK else labels
    )
    worse = Server().but(bad.changes)
    eight = [Server(rank=0).but(bad.changes), *(Server(rank=rank) for rank in range(1, 8))]
    together = {series: line for server in eight for series, line in server.steady().items()}
    return [
        Case(bad.alert, f"it is so{what}", worse.steady(), ranked),
        Case(bad.alert, f"healthy{what}", Server().steady()),
        Case(bad.alert, f"low traffic{what}", (worse if bad.guarded else Server()).scaled(_QUIET).steady()),
        Case(bad.alert, f"a counter reset by a restart{what}", Server().restarted(bad.changes)),
        Case(bad.alert, f"one rank of eight{what}", together, ranked if bad.alone else ()),
        Case(bad.alert, f"a gap in scraping{what}", Server().gapped(bad.changes)),
        Case(bad.alert, f"a new server with no history{what}", Server().newcomer(bad.changes)),
    ]


_WITHOUT_MODE = (
    "SGLangFenceLostTime",
    "SGLangFenceBarrierDisabled",
    "SGLangFenceObserverBroken",
    "SGLangFenceObserverSilent",
    "SGLangFenceHookMissing",
)
_BY_RANK = ("SGLangFenceBarrierDisabled", "no device times")
"""Alerts, and ways of theirs, that name the rank."""


def metrics_of(expr: str) -> set[str]:
    """Return the names of the metrics that an expression reads, through recording rules too."""
    recorded = {rule.record: rule.expr for rule in recording_rules(Parameters())}
    found: set[str] = set()
    for name in re.findall(r"\bsglang_fence[:\w]+|\bup\b", expr):
        found |= metrics_of(recorded[name]) if name in recorded else {name}
    return found


def _file(alert: str, found: list[Case]) -> str:
    read = set().union(*(metrics_of(one.expr) for one in alerts(Parameters()) if one.name == alert))
    lines = [
        "# Made by `python -m dashboards.cases`. Don't edit.",
        "rule_files: [../sglang-fence.rules.yaml]",
        "evaluation_interval: 1m",
        "tests:",
    ]
    for case in found:
        needed = {series: line for series, line in case.series.items() if series.partition("{")[0] in read}
        lines += [f"  - {json.dumps(replace(case, series=needed).to_json())}"]
    return "\n".join(lines) + "\n"
