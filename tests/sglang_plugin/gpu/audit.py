"""The audit of SGLang on a GPU: Triton attention, plain and with EAGLE; then fifty requests, as without an audit.

    python3 -m tests.sglang_plugin.gpu.audit MODEL SCRATCH [REPEATS [KIND]]

``MODEL`` is a folder with a ``config.json``, beside one called ``MODEL_eagle`` for the draft. Run it in the root of the
repository. ``KIND`` is ``plain`` or ``eagle``; by default, both. Prints what was found; exit status 1 if an end is
unsound, a plant was missed, or a token differs.
"""

# ruff: noqa: T201 - it prints

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from sglang_fence.sglang_plugin.audit.command import ARGUMENTS, TOKENS, run_sglang
from tests.sglang_plugin.gpu.engines import EAGLE


def main(model: str, scratch: Path, repeats: int, kinds: str) -> int:
    """Audit one or both; return the exit status."""
    scratch.mkdir(parents=True, exist_ok=True)
    failed = 0
    for name, extra in (("plain", {}), ("eagle", {**EAGLE, "speculative_draft_model_path": f"{model}_eagle"})):
        if name not in kinds:
            continue
        arguments = json.dumps({"dtype": "bfloat16", **extra})
        audited, never = scratch / f"{name}_audited.json", scratch / f"{name}_never.json"
        os.environ |= {ARGUMENTS: arguments, TOKENS: str(audited)}
        print(f"{name}:", flush=True)
        failed += run_sglang(model, repeats, scratch / f"{name}.json")
        subprocess.run(
            [sys.executable, "-m", "sglang_fence.sglang_plugin.audit.engine", model, "-", arguments, str(never)],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        tokens = [json.loads(file.read_text(encoding="utf-8")) for file in (audited, never)]
        differing = sum(one != other for one, other in zip(*tokens, strict=True))
        print(f"{name}: of {len(tokens[0])} requests {differing} differ from an engine that was never audited")
        failed += bool(differing)
    return 1 if failed else 0


if __name__ == "__main__":
    folder, place, *rest = sys.argv[1:]
    asked = dict(zip(("repeats", "kind"), rest, strict=False))
    sys.exit(main(folder, Path(place), int(asked.get("repeats", 20)), asked.get("kind", "plain eagle")))
