"""``python -m dashboards.cases``: write the promtool tests, and the rules that they test."""

from __future__ import annotations

from pathlib import Path

import dashboards
from dashboards.cases.build import files
from sglang_fence.mixin.parameters import Parameters
from sglang_fence.mixin.rules import RULES_FILE, rules_yaml

if __name__ == "__main__":
    here = Path(dashboards.__file__).parent
    (here / RULES_FILE).write_text(rules_yaml(Parameters()), encoding="utf-8")
    for name, text in files().items():
        (here / "tests" / name).write_text(text, encoding="utf-8")
