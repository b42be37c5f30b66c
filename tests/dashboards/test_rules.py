"""Rules as promtool sees them: well formed, and each alert fires where it should and nowhere else."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dashboards.cases.build import cases, files
from dashboards.cases.case import MUST_NOT
from sglang_fence.catalogue import UNEXPECTED_REASONS
from sglang_fence.contract import FallbackReason
from sglang_fence.errors import ConfigError
from sglang_fence.mixin.parameters import Parameters
from sglang_fence.mixin.rules import RULES_FILE, alerts, build_rules, rules_yaml

PROMTOOL = shutil.which("promtool")
HERE = Path(__file__).resolve().parents[2] / "dashboards"
ALERTS = sorted({alert.name for alert in alerts(Parameters())})

needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="needs promtool, of Prometheus")


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(PROMTOOL), *arguments], capture_output=True, text=True, check=False)


def test_the_committed_rules_and_tests_are_what_is_built() -> None:
    assert (HERE / RULES_FILE).read_text(encoding="utf-8") == rules_yaml(Parameters())
    committed = {path.name: path.read_text(encoding="utf-8") for path in (HERE / "tests").iterdir()}
    assert committed == files()


def test_the_yaml_says_what_was_built() -> None:
    yaml = pytest.importorskip("yaml", reason="needs PyYAML")
    assert yaml.safe_load(rules_yaml(Parameters())) == build_rules(Parameters())


@needs_promtool
@pytest.mark.parametrize("parameters", [Parameters(), Parameters(window="5s", hold="1s", day="1m", interval="500ms")])
def test_promtool_checks_the_rules(parameters: Parameters, tmp_path: Path) -> None:
    path = tmp_path / RULES_FILE
    path.write_text(rules_yaml(parameters), encoding="utf-8")
    checked = promtool("check", "rules", str(path))
    assert (checked.returncode, checked.stderr) == (0, "")
    assert "SUCCESS" in checked.stdout


@needs_promtool
@pytest.mark.parametrize("alert", ALERTS)
def test_promtool_runs_the_cases_of(alert: str) -> None:
    ran = promtool("test", "rules", str(HERE / "tests" / f"{alert}.yaml"))
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("alert", ALERTS)
def test_there_is_a_case_in_which_it_fires_and_one_of_each_in_which_it_must_not(alert: str) -> None:
    own = [case for case in cases() if case.alert == alert]
    assert any(case.fires for case in own)
    assert any(not case.fires for case in own)
    names = [case.name for case in own]
    assert not [kind for kind in MUST_NOT if not any(name.startswith(kind) for name in names)]
    assert not [
        case.title for case in own if case.fires and case.name.startswith(("low", "a counter", "a gap", "a new"))
    ]


@needs_promtool
def test_a_wrong_expectation_fails(tmp_path: Path) -> None:
    text = (HERE / "tests" / "SGLangFenceAuditFailed.yaml").read_text(encoding="utf-8")
    path = tmp_path / "wrong.yaml"
    path.write_text(text.replace("../", f"{HERE}/").replace("critical", "harmless"), encoding="utf-8")
    assert promtool("test", "rules", str(path)).returncode != 0


@needs_promtool
def test_the_text_for_eagle_names_the_draft_runner_and_what_to_do(tmp_path: Path) -> None:
    eagle = next(case for case in cases() if case.name.startswith("EAGLE"))
    test: dict[str, Any] = eagle.to_json()
    del test["promql_expr_test"]
    test["alert_rule_test"] = [{"eval_time": eagle.at, "alertname": eagle.alert, "exp_alerts": []}]
    path = tmp_path / "eagle.yaml"
    content = {"rule_files": [str(HERE / RULES_FILE)], "evaluation_interval": "1m", "tests": [test]}
    path.write_text(json.dumps(content), encoding="utf-8")
    told = promtool("test", "rules", str(path))
    assert told.returncode != 0  # nothing was expected, so that it prints what it got
    printed = told.stdout + told.stderr
    for words in (
        "100% of target_verify steps of backend triton",
        "reason backend_unknown",
        "The draft runner's draft_extend phase is the one: its backend triton declares UNKNOWN.",
        "upgrade SGLang, or audit the draft runner's backend",
        "/d/sglang-fence-server?var-job=sglang&var-instance=a%3A30000",
        "SGLangFenceUnknownFallbacks.md",
    ):
        assert words in printed


def test_each_alert_has_all_that_an_operator_needs() -> None:
    for alert in alerts(Parameters()):
        rule: dict[str, Any] = alert.to_json(grafana_url="https://grafana.test", runbooks_url="https://books.test/x/")
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert set(rule["annotations"]) == {"summary", "description", "dashboard_url", "runbook_url"}
        assert rule["annotations"]["runbook_url"] == f"https://books.test/x/{alert.name}.md"
        assert "{{" in rule["annotations"]["description"]


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_has_a_runbook(alert: str) -> None:
    text = (HERE / "runbooks" / f"{alert}.md").read_text(encoding="utf-8")
    for heading in (
        "## What it means",
        "## What it costs",
        "## Find the cause",
        "## What to do",
        "## How to know it is over",
    ):
        assert heading in text, heading


def test_no_runbook_is_left_over() -> None:
    assert sorted(path.stem for path in (HERE / "runbooks").glob("SGLang*.md")) == ALERTS


def test_runbooks_answer_each_reason() -> None:
    text = (HERE / "runbooks" / "reasons.md").read_text(encoding="utf-8")
    assert not [reason.value for reason in FallbackReason if f"\n## `{reason.value}`" not in text]


def test_each_unexpected_reason_is_alerted_on_and_no_expected_one() -> None:
    exprs = "\n".join(
        a.expr
        for a in alerts(Parameters())
        if a.name in {"SGLangFenceUnknownFallbacks", "SGLangFenceUnexplainedFallbacks"}
    )
    assert [reason for reason in UNEXPECTED_REASONS if reason in exprs] == list(UNEXPECTED_REASONS)
    assert not [reason.value for reason in FallbackReason if not reason.info.expected and reason.value not in exprs]
    assert not [
        reason.value for reason in FallbackReason if reason.info.expected and f"{reason.value}" in exprs.split('"')
    ]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"window": "5"}, "'5' is no duration"),
        ({"window": "0s"}, "'0s' is no duration"),
        ({"window": "99999999999999999999d"}, "is no duration"),
        ({"hold": "soon"}, "'soon' is no duration"),
        ({"grafana_url": "grafana"}, "'grafana' is no address"),
    ],
)
def test_parameters_that_cannot_be_are_refused(settings: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Parameters(**settings)  # type: ignore[arg-type] # thresholds aren't among them


@pytest.mark.parametrize("setting", ["decode=0.1", "lost", "lost=", "lost=-1", "lost=nan", "lost=1e", "=1"])
def test_thresholds_that_cannot_be_are_refused(setting: str) -> None:
    with pytest.raises(ConfigError, match=f"^--set {setting}: "):
        Parameters().with_thresholds([setting])


def test_a_threshold_comes_out_in_the_rules() -> None:
    text = rules_yaml(Parameters(window="10s").with_thresholds(["decode_warning=0.07", "min_steps=3"]))
    assert '{mode="decode", reason="backend_unknown"} > 0.07' in text
    assert "* 10 >= 3" in text
    assert "[5m]" not in text
