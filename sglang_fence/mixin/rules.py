"""``build_rules``: the groups that Prometheus loads, and their YAML."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from sglang_fence.mixin.alerts_cost import cost_alerts
from sglang_fence.mixin.alerts_fallbacks import fallback_alerts
from sglang_fence.mixin.alerts_state import state_alerts
from sglang_fence.mixin.recording import recording_rules

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sglang_fence.mixin.model import Alert
    from sglang_fence.mixin.parameters import Parameters

RULES_FILE = "sglang-fence.rules.yaml"

_HEADER = "# Made by `sglang-fence rules export`, which takes the window and thresholds as options. Don't edit.\n"


def alerts(parameters: Parameters) -> list[Alert]:
    """Return every alert."""
    return [*fallback_alerts(parameters), *cost_alerts(parameters), *state_alerts(parameters)]


def build_rules(parameters: Parameters) -> dict[str, object]:
    """Return the content of the rule file, which is also the ``spec`` of a PrometheusRule."""
    recorded = [rule.to_json() for rule in recording_rules(parameters)]
    alerting = [
        alert.to_json(grafana_url=parameters.grafana_url, runbooks_url=parameters.runbooks_url)
        for alert in alerts(parameters)
    ]
    return {
        "groups": [
            # One group of both: rules of a group are evaluated in order, so that an alert sees its ratios' newest.
            {"name": "sglang-fence", "interval": parameters.interval, "rules": [*recorded, *alerting]},
        ],
    }


def rules_yaml(parameters: Parameters) -> str:
    """Return the rule file."""
    return _HEADER + "".join(f"{line}\n" for line in _mapping(build_rules(parameters)))


def _mapping(value: dict[str, object]) -> Iterator[str]:
    for key, inner in value.items():
        if isinstance(inner, dict):
            yield f"{key}:"
            yield from (f"  {line}" for line in _mapping(inner))
        elif isinstance(inner, list):
            yield f"{key}:"
            for item in inner:
                for number, line in enumerate(_mapping(item)):
                    yield f"  {'  ' if number else '- '}{line}"
        elif isinstance(inner, str) and "\n" in inner:
            yield f"{key}: |-"
            yield from (f"  {line}" for line in inner.split("\n"))
        else:
            yield f"{key}: {json.dumps(inner, ensure_ascii=False)}"  # a JSON scalar is a YAML scalar
