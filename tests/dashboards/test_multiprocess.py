"""Four processes that serve the same: Prometheus comes to the same ratios as with one.

Their page is served by a fifth process, as SGLang does it; promtool evaluates the recording rules over it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.parser import text_string_to_metric_families

from sglang_fence.mixin.parameters import Parameters
from sglang_fence.mixin.rules import RULES_FILE, rules_yaml

if TYPE_CHECKING:
    from prometheus_client.samples import Sample

PROMTOOL = shutil.which("promtool")
RATIOS = (
    'sglang_fence:server_fine_steps:ratio{mode="decode"}',
    'sglang_fence:server_fallbacks:ratio{mode="decode",reason="backend_unknown"}',
    'sglang_fence:server_fallbacks:ratio{mode="decode",reason="forced"}',
    "sum without (reason) (sglang_fence:server_lost_forward:ratio)",
    'sglang_fence:server_forward_seconds:p50{mode="decode"}',
    'sglang_fence:server_wait_seconds:p99{mode="decode"}',
)


def page_of(folder: Path, ranks: int) -> list[Sample]:
    """Let so many processes serve, and return the samples of their common page."""
    folder.mkdir()
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(folder)}
    root = Path(__file__).resolve().parents[2]
    workers = [
        subprocess.Popen([sys.executable, "-m", "tests.dashboards.rank_worker", str(rank)], cwd=root, env=environment)
        for rank in range(ranks)
    ]
    assert [worker.wait() for worker in workers] == [0] * ranks
    registry = CollectorRegistry()
    MultiProcessCollector(registry, path=str(folder))  # type: ignore[no-untyped-call] # it is untyped
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return [sample for family in families for sample in family.samples]


def series_of(samples: list[Sample], instance: str) -> list[dict[str, str]]:
    """Return promtool's series: at first 0, then what the page says, a window apart."""
    rows: list[dict[str, str]] = []
    for sample in samples:
        labels = {"job": "sglang", "instance": instance, **sample.labels}
        text = ",".join(f'{name}="{value}"' for name, value in labels.items())
        rows.append({"series": f"{sample.name}{{{text}}}", "values": f"0 {sample.value!r} {sample.value!r}"})
    return rows


@pytest.mark.skipif(PROMTOOL is None, reason="needs promtool, of Prometheus")
def test_four_processes_come_to_the_ratios_of_one(tmp_path: Path) -> None:
    rules = tmp_path / RULES_FILE
    rules.write_text(rules_yaml(Parameters()), encoding="utf-8")
    pages = {f"{ranks}:1": page_of(tmp_path / str(ranks), ranks) for ranks in (1, 4)}
    one, four = (
        sum(sample.value for sample in page if sample.name == "sglang_fence_steps_total") for page in pages.values()
    )
    assert four == 4 * one > 0
    compared = [
        {
            "expr": f"count(abs(({query}) / scalar(max({_of(query, '1:1')})) - 1) < 1e-9)",
            "eval_time": "2m",
            "exp_samples": [{"labels": "{}", "value": 2}],
        }
        for query in RATIOS
    ]
    test = {
        "rule_files": [str(rules)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [row for where, page in pages.items() for row in series_of(page, where)],
                "promql_expr_test": compared,
            }
        ],
    }
    path = tmp_path / "test.yaml"
    path.write_text(json.dumps(test), encoding="utf-8")
    ran = subprocess.run([str(PROMTOOL), "test", "rules", str(path)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def _of(query: str, instance: str) -> str:
    """Restrict a query to one server."""
    if "{" in query:
        return query.replace("{", f'{{instance="{instance}",')
    return query.replace(":ratio", f':ratio{{instance="{instance}"}}')
