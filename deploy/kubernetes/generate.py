#!/usr/bin/env python3
"""Writes what Kubernetes needs as objects of its own: the rules as a PrometheusRule, the dashboards as ConfigMaps.

Rules and dashboards have one source each, and this copies from there: run it after either has changed. A test fails
where that was forgotten. Kustomize can't do it, since it reads no file outside of its own folder, and wraps none.
"""

from __future__ import annotations

import sys
from pathlib import Path

from sglang_fence.mixin.parameters import Parameters
from sglang_fence.mixin.rules import rules_yaml

ROOT = Path(__file__).resolve().parents[2]
DASHBOARDS = ROOT / "sglang_fence" / "mixin" / "dashboards"
BASE = Path(__file__).resolve().parent / "base"

MADE = "# Made by deploy/kubernetes/generate.py. Change the rules in sglang_fence/mixin instead.\n"

RULE = """apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: sglang-fence
spec:
"""

KUSTOMIZATION = """# Made by deploy/kubernetes/generate.py from what is built in dashboards/. Change that instead.
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization

# Grafana's sidecar finds them by the label, wherever they are, and puts them into the folder.
generatorOptions:
  disableNameSuffixHash: true
  labels:
    grafana_dashboard: "1"
  annotations:
    grafana_folder: sglang-fence

configMapGenerator:
"""


def prometheus_rule() -> str:
    """Return the PrometheusRule: its ``spec`` is the rule file, word for word."""
    rules = rules_yaml(Parameters()).splitlines()
    spec = [f"  {line}" if line else "" for line in rules if not line.startswith("#")]
    return MADE + RULE + "\n".join(spec) + "\n"


def config_maps(names: list[str]) -> str:
    """Return the kustomization that makes a ConfigMap of each dashboard: one may be half a megabyte at most."""
    items = [f"  - name: dashboard-{Path(name).stem}\n    files:\n      - {name}\n" for name in names]
    return KUSTOMIZATION + "".join(items)


def generated() -> dict[str, str]:
    """Return the content of each file, by its path below ``base``."""
    dashboards = {path.name: path.read_text(encoding="utf-8") for path in sorted(DASHBOARDS.glob("*.json"))}
    files = {f"dashboards/{name}": text for name, text in dashboards.items()}
    files["dashboards/kustomization.yaml"] = config_maps(list(dashboards))
    files["rules/prometheusrule.yaml"] = prometheus_rule()
    return files


def main() -> None:
    """Write them, and remove dashboards that are no more."""
    files = generated()
    for stale in (BASE / "dashboards").glob("*.json"):
        if f"dashboards/{stale.name}" not in files:
            stale.unlink()
    for name, text in files.items():
        path = BASE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{path.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
