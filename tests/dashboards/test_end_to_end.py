"""The demonstration, scraped by a real Prometheus: no panel is empty, an UNKNOWN fallback reaches whoever is on call.

The scenario goes on when the test has seen what it wants to: nothing depends on how fast the machine is.
"""

from __future__ import annotations

import math
import re
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from sglang_fence.demo.page import Page
from sglang_fence.demo.rank import Rank
from sglang_fence.demo.scenario import PHASES, Scenario
from sglang_fence.mixin.parameters import Parameters
from sglang_fence.mixin.recording import recording_rules
from sglang_fence.mixin.rules import RULES_FILE, rules_yaml
from tests.dashboards.boards import boards, filled, targets
from tests.dashboards.stack import ALERTMANAGER, AMTOOL, PROMETHEUS, PROMTOOL, Webhook, eventually, stack

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from tests.dashboards.stack import Api

pytestmark = pytest.mark.skipif(
    None in {PROMETHEUS, PROMTOOL, ALERTMANAGER, AMTOOL}, reason="needs prometheus and prometheus-alertmanager"
)

WINDOW = "5s"
FAST = Parameters(window=WINDOW, hold="2s", hold_critical="1s", day="10s", interval="500ms").with_thresholds(
    ["min_steps=5", "min_timed_steps=5"]
)
ALERT = "SGLangFenceUnknownFallbacks"
JOBS = {"one": 1, "four": 4}
"""The same scenario on so many ranks."""


class Stage:
    """Servers that stay in a phase until they are told to go on."""

    def __init__(self) -> None:
        self.ranks = {
            job: [Rank({"model_name": "demo", "tp_rank": str(rank)}) for rank in range(count)]
            for job, count in JOBS.items()
        }
        self.pages = {job: Page(ranks, "127.0.0.1", 0) for job, ranks in self.ranks.items()}
        self.phase = ""
        self._reached = 0.0
        self._ended = threading.Event()
        phases = [replace(phase, seconds=1.0) for phase in PHASES]
        everyone = [rank for ranks in self.ranks.values() for rank in ranks]
        self._scenario = Scenario(everyone, phases, lambda: self._reached, self._pause, self._enter)
        self._thread = threading.Thread(target=self._scenario.play, daemon=True)
        self._thread.start()

    def go_on(self) -> None:
        """Leave the phase."""
        self._reached += 1.0

    def finish(self) -> None:
        """Serve no more; what was served stays on the pages."""
        self._ended.set()
        self._thread.join()

    def close(self) -> None:
        self.finish()
        for page in self.pages.values():
            page.close()

    def _pause(self) -> bool:
        return self._ended.wait(0.05)

    def _enter(self, phase: object) -> None:
        self.phase = str(getattr(phase, "name", ""))


@pytest.fixture
def stage() -> Generator[Stage]:
    made = Stage()
    yield made
    made.close()


@pytest.fixture
def webhook() -> Generator[Webhook]:
    made = Webhook()
    yield made
    made.close()


@pytest.fixture
def api(stage: Stage, webhook: Webhook, tmp_path: Path) -> Generator[Api]:
    rules = tmp_path / RULES_FILE
    rules.write_text(rules_yaml(FAST), encoding="utf-8")
    where = {job: f"127.0.0.1:{page.port}" for job, page in stage.pages.items()}
    with stack(tmp_path, rules, where, webhook) as running:
        yield running


def ratio(api: Api, query: str) -> dict[str, float]:
    """Return an answer by job."""
    return {labels["job"]: round(value, 9) for labels, value in api.values(query)}


def both(value: float) -> dict[str, float]:
    return dict.fromkeys(JOBS, value)


class Seen:
    """Which queries have returned data so far."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.missing = {
            f"{one.board}, {one.panel}, {number}": filled(one.expr, WINDOW) for number, one in enumerate(targets())
        }
        self.missing |= {rule.record: rule.record for rule in recording_rules(FAST)}

    def look(self) -> None:
        """Forget those that return a number."""
        for where, query in list(self.missing.items()):
            if any(not math.isnan(value) for _, value in self._api.values(query)):
                del self.missing[where]


def test_the_scenario_fills_every_panel_and_its_alert_is_told_and_resolved(
    api: Api, stage: Stage, webhook: Webhook
) -> None:
    fine = 'sglang_fence:server_fine_steps:ratio{mode="decode"}'
    fallbacks = 'sglang_fence:server_fallbacks:ratio{{mode="decode", reason="{}"}}'
    seen = Seen(api)

    eventually("fine on both", lambda: ratio(api, fine) == both(1.0))
    seen.look()
    assert not webhook.of(ALERT, "firing")

    stage.go_on()
    unknown = fallbacks.format("backend_unknown")
    eventually("UNKNOWN on both", lambda: ratio(api, unknown) == both(1.0))
    told = {"severity": "critical", "mode": "decode", "reason": "backend_unknown", "model_name": "demo"}
    eventually("the page", lambda: all(webhook.of(ALERT, "firing", job=job, **told) for job in JOBS))
    for job in JOBS:
        text = webhook.of(ALERT, "firing", job=job, **told)[0]["annotations"]["description"]
        assert "backend_unknown" in text
        assert "The target runner's decode phase is the one: its backend native declares UNKNOWN." in text
    pending = f'count_over_time(ALERTS{{alertname="{ALERT}", alertstate="pending", severity="critical"}}[10m])'
    assert {labels["job"] for labels, _ in api.values(pending)} == set(JOBS)
    seen.look()

    stage.go_on()
    eventually("forced on both", lambda: ratio(api, fallbacks.format("forced")) == both(1.0))
    seen.look()

    stage.go_on()
    eventually("fine again", lambda: ratio(api, fine) == both(1.0))
    eventually("resolved", lambda: all(webhook.of(ALERT, "resolved", job=job, **told) for job in JOBS))
    assert not api.values(f'ALERTS{{alertname="{ALERT}"}}')
    seen.look()
    assert stage.phase == "recovered"
    assert seen.missing == {}

    stage.finish()
    _check_that_ranks_add_up(api)
    _check_choices(api)


def _check_that_ranks_add_up(api: Api) -> None:
    """Four ranks that served the same have four times the steps, and the same ratios."""
    steps = "sum by (job) (sglang_fence_steps_total)"
    eventually("the last step is scraped", lambda: _quarter(ratio(api, steps)))
    for query in (
        'sum by (job) (sglang_fence_steps_total{ends="unknown"}) / sum by (job) (sglang_fence_steps_total)',
        'sum by (job) (sglang_fence_steps_total{fence="fine"}) / sum by (job) (sglang_fence_steps_total)',
        "sum by (job) (sglang_fence_lost_seconds_total) / sum by (job) (sglang_fence_forward_seconds_sum)",
        "histogram_quantile(0.5, sum by (job, le) (sglang_fence_wait_seconds_bucket))",
    ):
        found = ratio(api, query)
        assert set(found) == set(JOBS)
        assert found["one"] == pytest.approx(found["four"], rel=1e-6), query


def _quarter(steps: dict[str, float]) -> bool:
    return set(steps) == set(JOBS) and steps["four"] == 4 * steps["one"]


def _check_choices(api: Api) -> None:
    """Every template variable offers something."""
    for board in boards().values():
        for variable in board["templating"]["list"]:
            if variable["type"] != "query":
                continue
            found = re.fullmatch(r"label_values\((.+), (\w+)\)", filled(variable["query"]))
            assert found is not None
            assert api.ask(f"label/{found[2]}/values", {"match[]": found[1]}), variable["name"]
